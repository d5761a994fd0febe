import { useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useEffect, useRef } from 'react';
import { address, get } from '../../api/client';
import { useStream } from '../../api/stream';
import type { Job, Page } from '../../api/types';
import { type Hint, useKeys } from '../../base/keys';
import { useWords } from '../../base/words';
import { JOB_STATUSES, type JobsSearch } from '../../model/addresses';
import { Item, Menu, Turning } from '../../widgets/controls';
import { JobCard } from '../../widgets/JobCard';
import { FindRuns, Foot } from '../../widgets/slots';
import { Failure, Loading } from '../../widgets/states';
import { Links } from './Links';

const route = getRouteApi('/jobs');
const LIMIT = 50;
const PAUSE = 200;
const HINTS: readonly Hint[] = [
  { keys: ['n', 'p'], does: 'key.pages' },
  { keys: ['?'], does: 'key.all' },
];

/** Forks, replays and resumes that were started here, newest first, as they go. */
export function JobsPage() {
  const { t } = useWords();
  const search = route.useSearch();
  const first = search.first ?? 0;
  const navigate = useNavigate();
  const found = useQuery({
    queryKey: ['jobs', search.status ?? null, first],
    queryFn: ({ signal }) =>
      get<Page<Job>>(address('/api/jobs', { status: search.status, first, limit: LIMIT }), signal),
    placeholderData: (before, query) => (query?.queryKey[1] === (search.status ?? null) ? before : undefined),
  });
  useFresh();
  const total = found.data?.total ?? 0;
  const turn = (to: number) => {
    if (to >= 0 && to < total) void navigate({ to: '/jobs', search: { ...search, first: to } });
  };
  useKeys({ n: () => turn(first + LIMIT), p: () => turn(Math.max(0, first - LIMIT)) });
  return (
    <main className="page">
      <FindRuns />
      <div className="hd">
        <div className="row">
          <h1>{t('job.title')}</h1>
          <ByStatus search={search} />
          <span className="grow" />
          {total > LIMIT && <Turning first={first} size={LIMIT} total={total} onTurn={turn} />}
        </div>
      </div>
      {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
      {found.isPending && <Loading what={t('job.title')} />}
      {found.data?.items.length === 0 && <None search={search} />}
      <div className="jobs">
        {found.data?.items.map(job => (
          <JobCard key={job.id} job={job}>
            <Links job={job} />
          </JobCard>
        ))}
      </div>
      <Foot hints={HINTS}>{found.data && <span>{t('jobs.count', { n: total })}</span>}</Foot>
    </main>
  );
}

/** Lists are asked for again when a job changed; many changes at once are one question. */
function useFresh(): void {
  const queries = useQueryClient();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  useStream('/api/jobs/stream', {
    job: () => {
      clearTimeout(timer.current);
      timer.current = setTimeout(() => void queries.invalidateQueries({ queryKey: ['jobs'] }), PAUSE);
    },
  });
}

function ByStatus({ search }: { readonly search: JobsSearch }) {
  const { t } = useWords();
  const navigate = route.useNavigate();
  const choose = (status: JobsSearch['status']) => void navigate({ search: status ? { status } : {} });
  return (
    <Menu
      label={t('runs.filter.status')}
      chosen={search.status && t(`status.${search.status}`)}
      onClear={() => choose(undefined)}
    >
      {JOB_STATUSES.map(status => (
        <Item key={status} chosen={status === search.status} onChoose={() => choose(status)}>
          {t(`status.${status}`)}
        </Item>
      ))}
    </Menu>
  );
}

/** Nothing was started yet, or nothing is as it was asked for. */
function None({ search }: { readonly search: JobsSearch }) {
  const { t } = useWords();
  if (search.status) {
    return (
      <div className="state">
        <p>{t('jobs.noneIs', { status: t(`status.${search.status}`) })}</p>
        <Link to="/jobs" search={{}} className="btn">
          {t('runs.clear')}
        </Link>
      </div>
    );
  }
  return (
    <div className="state">
      <p className="t2">{t('job.none')}</p>
      <Link to="/runs" search={{}} className="btn">
        {t('state.toRuns')}
      </Link>
    </div>
  );
}
