import { useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';
import { get } from '../../api/client';
import { useStream } from '../../api/stream';
import type { Job, Page } from '../../api/types';
import { moment, shortId } from '../../base/format';
import { useWords } from '../../base/words';
import { JobCard } from '../../widgets/JobCard';
import { Finder, Foot } from '../../widgets/slots';
import { Failure, Loading } from '../../widgets/states';

const LIMIT = 200;

/** Forks, replays and resumes that were started here, newest first, as they go. */
export function JobsPage() {
  const { t, language } = useWords();
  const navigate = useNavigate();
  const queries = useQueryClient();
  const found = useQuery({
    queryKey: ['jobs'],
    queryFn: ({ signal }) => get<Page<Job>>(`/api/jobs?limit=${LIMIT}`, signal),
  });
  useStream('/api/jobs/stream', { job: () => void queries.invalidateQueries({ queryKey: ['jobs'] }) });
  return (
    <main className="page">
      <Finder label={t('app.find')} value="" onFind={q => void navigate({ to: '/runs', search: { q } })} />
      <div className="hd">
        <div className="row">
          <h1>{t('job.title')}</h1>
          {found.data && <span className="dim">{found.data.total}</span>}
        </div>
      </div>
      {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
      {found.isPending && <Loading what={t('job.title')} />}
      {found.data?.total === 0 && <p className="state t2">{t('job.none')}</p>}
      <div className="jobs">
        {found.data?.items.map(job => (
          <JobCard key={job.id} job={job}>
            <p className="row wrap note">
              <span title={job.created_at}>{moment(job.created_at, language)}</span>
              <Link to="/runs/$id" params={{ id: job.parent }} search={{}} className="mono">
                {job.parent}
              </Link>
              {job.run_ids.map(id => (
                <Link key={id} to="/runs/$id" params={{ id }} search={{}} className="mono">
                  {shortId(id)}
                </Link>
              ))}
              {job.kind === 'fork' && job.run_ids.length > 0 && job.status === 'done' && (
                <Link to="/summary" search={{ run: [job.parent, ...job.run_ids] }}>
                  {t('job.look')}
                </Link>
              )}
            </p>
          </JobCard>
        ))}
      </div>
      <Foot hints={[{ keys: ['?'], does: 'key.all' }]} />
    </main>
  );
}
