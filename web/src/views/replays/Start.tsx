import { useMutation, useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { ApiError, get, path, send } from '../../api/client';
import type { Job, RunDetail, Workers } from '../../api/types';
import { type Hint, useKeys } from '../../base/keys';
import { useWords } from '../../base/words';
import { LEVELS, type Level } from '../../model/report';
import { Seg } from '../../widgets/controls';
import { Failure, Loading } from '../../widgets/states';
import { Command, Kbd } from '../../widgets/text';

const LOOK = 3000;
const HINT: Hint = { keys: ['r'], does: 'key.replay' };

/** Start a replay of a run: by a worker that has its agent, or the command that starts one. */
export function Start({ id }: { readonly id: string }) {
  const { t } = useWords();
  const run = useQuery({
    queryKey: ['run', id],
    queryFn: ({ signal }) => get<RunDetail>(path`/api/runs/${id}`, signal),
  });
  const workers = useQuery({
    queryKey: ['workers'],
    queryFn: ({ signal }) => get<Workers>('/api/workers', signal),
    refetchInterval: LOOK,
  });
  if (run.isError) return <Failure error={run.error} />;
  if (workers.isError) return <Failure error={workers.error} />;
  if (!run.data || !workers.data) return <Loading what={id} rows={1} />;
  return (
    <section className="start" aria-label={t('report.start')}>
      <Form run={run.data} workers={workers.data} />
    </section>
  );
}

function Form({ run, workers }: { readonly run: RunDetail; readonly workers: Workers }) {
  const { t } = useWords();
  const agents = [...new Set(workers.items.flatMap(worker => worker.agents))].sort();
  const [chosen, setChosen] = useState<string | null>(null);
  const [level, setLevel] = useState<Level>('content');
  const own = run.engine !== 'generic';
  const agent = chosen ?? (agents.includes(run.agent) ? run.agent : null);
  const navigate = useNavigate();
  const start = useMutation({
    mutationFn: () =>
      send<{ job: Job }>('POST', path`/api/runs/${run.id}/replay`, { agent: own ? agent : null, level }),
    onSuccess: ({ job }) => void navigate({ to: '/jobs/$id', params: { id: job.id } }),
  });
  const off = reasonOff(run, own && agent === null);
  const can = off === null && !start.isPending;
  useKeys({ r: () => can && start.mutate() });
  return (
    <>
      <div className="row wrap">
        {own && agents.length > 0 && (
          <label className="row">
            {t('report.agent')}
            <select className="inp s" value={agent ?? ''} onChange={event => setChosen(event.target.value)}>
              {agent === null && <option value="">{t('report.chooseAgent')}</option>}
              {agents.map(name => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
        )}
        <Seg<Level>
          label={t('report.col.level')}
          value={level}
          choices={LEVELS.map(value => ({ value, label: t(`report.level.${value}`) }))}
          onChoose={setLevel}
        />
        <button
          type="button"
          className="btn p"
          disabled={!can}
          aria-describedby={off ? 'replay-off' : undefined}
          onClick={() => start.mutate()}
        >
          {t(start.isPending ? 'fork.starting' : 'replay.start')} <Kbd keys={HINT.keys} />
        </button>
        <span id="replay-off" className="t2">
          {off ? t(off, { agent: run.agent }) : t(`report.level.${level}.say`)}
        </span>
      </div>
      {off === 'report.noWorker' && <ToType run={run} />}
      {start.isError && <Refused error={start.error} />}
    </>
  );
}

/** Why no replay can be started, or null. */
function reasonOff(run: RunDetail, lacks: boolean) {
  if (run.badges.chain === 'broken') return 'report.offDamaged' as const;
  if (run.status === 'running') return 'report.offRunning' as const;
  if (run.erased) return 'report.offGone' as const;
  if (run.coverage === 'trace_only') return 'report.offTrace' as const;
  return lacks ? ('report.noWorker' as const) : null;
}

function Refused({ error }: { readonly error: Error }) {
  const hint =
    error instanceof ApiError && error.reason === 'no_worker' ? /agentloupe .*/.exec(error.hint ?? '') : null;
  return <Failure error={error}>{hint && <Command>{hint[0]}</Command>}</Failure>;
}

/** The command that a person types to start a worker; it is not run from here. */
function ToType({ run }: { readonly run: RunDetail }) {
  const { t } = useWords();
  return (
    <div className="totype">
      <Command>{run.worker_command}</Command>
      <p className="note">{t('report.workerSay')}</p>
    </div>
  );
}
