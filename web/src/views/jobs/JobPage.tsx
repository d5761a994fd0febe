import { useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { get, path } from '../../api/client';
import { useStream } from '../../api/stream';
import type { Job } from '../../api/types';
import { duration, moment, zone } from '../../base/format';
import type { Hint } from '../../base/keys';
import { useWords } from '../../base/words';
import { isGoing, JobCard } from '../../widgets/JobCard';
import { FindRuns, Foot } from '../../widgets/slots';
import { Failure, Loading } from '../../widgets/states';
import { RunText } from '../../widgets/text';
import { Links } from './Links';

const route = getRouteApi('/jobs/$id');
const HINTS: readonly Hint[] = [{ keys: ['?'], does: 'key.all' }];

/** One job as it goes. */
export function JobPage() {
  const { t } = useWords();
  const { id } = route.useParams();
  const queries = useQueryClient();
  const found = useQuery({ queryKey: ['job', id], queryFn: ({ signal }) => get<Job>(path`/api/jobs/${id}`, signal) });
  useStream(found.data && isGoing(found.data) ? path`/api/jobs/${id}/stream` : null, {
    job: data => queries.setQueryData(['job', id], (data as { readonly job: Job }).job),
    end: () => {
      for (const name of ['job', 'jobs', 'reports', 'runs', 'run']) {
        void queries.invalidateQueries({ queryKey: [name] });
      }
    },
  });
  const job = found.data;
  return (
    <main className="page">
      <FindRuns />
      <div className="hd">
        <div className="row">
          <span className="crumb ell">
            <Link to="/jobs" search={{}}>
              {t('job.title')}
            </Link>
            {' /'}
          </span>
          <h1 className="ell">{job ? t(`jobs.of.${job.kind}`) : id}</h1>
          <span className="mono dim">{job && id}</span>
        </div>
      </div>
      {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
      {found.isPending && <Loading what={id} />}
      {job && (
        <div className="jobs">
          <JobCard job={job}>
            <Links job={job} />
          </JobCard>
          <Facts job={job} />
        </div>
      )}
      <Foot hints={HINTS} />
    </main>
  );
}

function Facts({ job }: { readonly job: Job }) {
  const { t, language } = useWords();
  const took = job.started_at && job.ended_at ? (Date.parse(job.ended_at) - Date.parse(job.started_at)) / 1000 : null;
  return (
    <section className="box pad" aria-label={t('jobs.facts')}>
      <dl className="kv">
        {job.from_step !== null && (
          <>
            <dt>{t('jobs.from')}</dt>
            <dd>{job.from_step === 'start' ? t('jobs.start') : job.from_step}</dd>
          </>
        )}
        <dt>{t('fork.engine')}</dt>
        <dd>{job.agent === null ? t('fork.engine.generic') : <RunText>{job.agent}</RunText>}</dd>
        <dt>{t('jobs.worker')}</dt>
        <dd className="mono">{job.worker ?? t('jobs.noWorkerYet')}</dd>
        <dt>{t('jobs.begun')}</dt>
        <dd>{job.started_at ? `${moment(job.started_at, language)} ${zone(language)}` : t('jobs.notYet')}</dd>
        <dt>{t('jobs.took')}</dt>
        <dd>{duration(took, language) ?? t('jobs.notYet')}</dd>
      </dl>
    </section>
  );
}
