import './run.css';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useCallback, useEffect, useState } from 'react';
import { path } from '../../api/client';
import { useStream } from '../../api/stream';
import type { RunDetail } from '../../api/types';
import { type Hint, useKeys } from '../../base/keys';
import { plain } from '../../base/visible';
import { useWords } from '../../base/words';
import { type RunSearch, TABS } from '../../model/addresses';
import { Foot } from '../../widgets/slots';
import { Failure, Loading } from '../../widgets/states';
import { Evidence } from './Evidence';
import { FindInRun } from './FindInRun';
import { Header } from './Header';
import { Inspector } from './Inspector';
import { MinimapView } from './MinimapView';
import { runQuery, useSteps } from './queries';
import { StepsPane } from './StepsPane';
import { Strips } from './Strips';
import { Transcript } from './Transcript';

const route = getRouteApi('/runs/$id');

const HINTS: readonly Hint[] = [
  { keys: ['j', 'k'], does: 'key.move' },
  { keys: ['Enter'], does: 'key.open' },
  { keys: ['f'], does: 'key.fork' },
  { keys: ['c'], does: 'key.compare' },
  { keys: ['[', ']'], does: 'key.siblings' },
  { keys: ['1', '6'], does: 'key.tabs' },
  { keys: ['+', '-', '0'], does: 'key.zoom' },
  { keys: ['/'], does: 'key.findRun' },
  { keys: ['?'], does: 'key.all' },
];

/** One run: its header, the steps, the transcript, and one step opened beside it. */
export function RunPage() {
  const { id } = route.useParams();
  const { t } = useWords();
  const run = useQuery(runQuery(id));
  if (run.data) return <Loaded key={id} run={run.data} />;
  return (
    <main className="page">
      <h1 className="vh">{plain(id)}</h1>
      {run.isError ? (
        <Failure error={run.error} again={() => void run.refetch()} />
      ) : (
        <Loading what={t('run.steps')} rows={8} />
      )}
    </main>
  );
}

/** Steps beyond which a map of the whole run stands above the transcript. */
const MANY = 300;

function Loaded({ run }: { readonly run: RunDetail }) {
  const { t } = useWords();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const steps = useSteps(run.id);
  const [view, setView] = useState<readonly [number, number]>([0, 0]);
  const live = run.status === 'running' || run.status === 'waiting';
  useLiveRun(run.id, live);
  const change = useCallback(
    (next: RunSearch, push = false) => void navigate({ search: before => ({ ...before, ...next }), replace: !push }),
    [navigate],
  );
  const total = steps.total ?? run.steps;
  const step = search.step ?? firstOpened(run);
  const go = (to: number) => change({ step: Math.max(0, Math.min(total - 1, to)) });
  const beside = { ...search, range: undefined };
  const sibling = (by: number) =>
    siblingOf(run, by, id => void navigate({ to: '/runs/$id', params: { id }, search: beside }));
  useKeys({
    j: () => go(step + 1),
    k: () => go(step - 1),
    ArrowDown: () => go(step + 1),
    ArrowUp: () => go(step - 1),
    Home: () => go(0),
    End: () => go(total - 1),
    c: () => {
      if (run.parent_run_id) void navigate({ to: '/compare', search: { a: run.parent_run_id, b: run.id } });
    },
    r: () => void navigate({ to: '/replays', search: { run: run.id } }),
    f: () => {
      if (steps.at(step)?.forkable)
        void navigate({ to: '/runs/$id/fork', params: { id: run.id }, search: { from: step } });
    },
    '[': () => sibling(-1),
    ']': () => sibling(1),
    Enter: () => document.getElementById('inspector')?.focus(),
    Escape: () => document.getElementById('transcript')?.focus(),
    ...Object.fromEntries(TABS.map((tab, at) => [String(at + 1), () => change({ tab })])),
  });
  useEffect(() => {
    document.title = `${plain(run.name)} · Agent Loupe`;
    return () => {
      document.title = 'Agent Loupe';
    };
  }, [run.name]);
  const pick = useCallback((to: number) => change({ step: to }), [change]);
  const zoom = useCallback((range: string | undefined) => change({ range }), [change]);
  return (
    <>
      <FindInRun run={run} text={search.q ?? ''} onText={q => change({ q })} onStep={pick} />
      <Header run={run} onEvidence={() => change({ panel: 'evidence' }, true)} />
      <Strips run={run} />
      {total > MANY && <MinimapView run={run} total={total} view={view} step={step} onStep={pick} />}
      <main className="rungrid">
        <StepsPane
          run={run}
          steps={steps}
          step={step}
          side={search.side}
          range={search.range}
          onStep={pick}
          onSide={side => change({ side })}
          onRange={zoom}
        />
        <Transcript
          key={run.id}
          run={run}
          step={step}
          asked={search.step}
          onStep={pick}
          onTab={tab => change({ tab })}
          onView={setView}
        />
        {total > 0 && !run.erased && (
          <Inspector
            run={run}
            step={step}
            tab={search.tab ?? 'overview'}
            onTab={tab => change({ tab })}
            onStep={pick}
          />
        )}
      </main>
      {search.panel === 'evidence' && <Evidence run={run} onClose={() => change({ panel: undefined })} />}
      <Foot hints={HINTS}>{t('run.shown', { n: total, total })}</Foot>
    </>
  );
}

/** What is open when the address names no step: the first new one of a fork, else the first that is no span around all. */
function firstOpened(run: RunDetail): number {
  if (run.forked_from_step !== null) return Math.min(run.forked_from_step, Math.max(0, run.steps - 1));
  return run.steps > 1 ? 1 : 0;
}

function siblingOf(run: RunDetail, by: number, go: (id: string) => void): void {
  const family = [run.id, ...run.lineage.siblings.items.map(one => one.id)].sort();
  const next = family[(family.indexOf(run.id) + by + family.length) % family.length];
  if (next && next !== run.id) go(next);
}

/** While a run goes on, what is known of it is refreshed as the server tells of new steps. */
function useLiveRun(id: string, live: boolean): void {
  const queries = useQueryClient();
  useStream(live ? path`/api/runs/${id}/stream` : null, {
    run: () => void queries.invalidateQueries({ queryKey: ['run', id], exact: true }),
    steps: () => void queries.invalidateQueries({ queryKey: ['run', id] }),
    end: () => void queries.invalidateQueries({ queryKey: ['run', id] }),
  });
}
