import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { ApiError, address, get, path } from '../../api/client';
import type { Page, RunDetail, StepHeader } from '../../api/types';
import { useWords } from '../../base/words';
import { faultIn, standing } from '../../model/evidence';
import { Icon } from '../../widgets/Icon';
import { Strip } from '../../widgets/states';
import { CoverageTag, Tag } from '../../widgets/tags';
import { Command, RunText, Said } from '../../widgets/text';
import { useEvidence } from './queries';

/** What must be known before anything below is believed; none of these can be closed. */
export function Strips({ run }: { readonly run: RunDetail }) {
  const { t } = useWords();
  return (
    <>
      <Damaged run={run} />
      {run.status === 'interrupted' && <Interrupted run={run} />}
      {run.status === 'waiting' && <Strip>{t('run.waiting')}</Strip>}
      {run.status === 'error' && run.error && <Failed run={run} error={run.error} />}
      <Coverage run={run} />
      {run.fidelity && (
        <Strip look="plain">
          <b>{t('run.imported')}</b> <RunText>{run.fidelity}</RunText>
        </Strip>
      )}
      {run.counts.miss > 0 && (
        <Strip>
          <b>{t('source.misses', { n: run.counts.miss })}</b>
          {run.hypothetical_from !== null && ` · ${t('run.hypothetical', { step: run.hypothetical_from })}`}
        </Strip>
      )}
    </>
  );
}

/** The first record that is not as it was sealed, or why that cannot be told. Never shown as a divergence. */
function Damaged({ run }: { readonly run: RunDetail }) {
  const { t } = useWords();
  const { verdict, checking, error } = useEvidence(run);
  if (run.newer !== null) {
    return (
      <Strip look="error">
        <b>{t('run.newer')}</b> <RunText>{run.newer}</RunText>. {t('run.upgrade')}
      </Strip>
    );
  }
  if (error instanceof ApiError) {
    return (
      <Strip look="error">
        <b>{t('run.cannotCheck')}</b> <RunText>{error.message}</RunText>
      </Strip>
    );
  }
  if (standing(run, verdict, checking) !== 'damaged') return null;
  const fault = verdict?.fault && faultIn(verdict.fault);
  return (
    <Strip look="error" actions={<Command>{`agentloupe verify ${run.id}`}</Command>}>
      <b>{t('run.damaged')}</b> {fault && t(fault.word, fault.values)} {t('run.damagedOff')}
    </Strip>
  );
}

const LAST = 100;

/** The last steps of a run that did not end well: where to fork from, and which writes nobody saw the end of. */
function useLastSteps(run: RunDetail) {
  const first = Math.max(0, run.steps - LAST);
  return useQuery({
    queryKey: ['run', run.id, 'last', first],
    queryFn: ({ signal }) =>
      get<Page<StepHeader>>(address(path`/api/runs/${run.id}/steps`, { first, limit: LAST }), signal),
  });
}

function Interrupted({ run }: { readonly run: RunDetail }) {
  const { t } = useWords();
  const steps = useLastSteps(run).data?.items ?? [];
  const writes = steps.filter(step => step.kind === 'tool' && ['open', 'unknown'].includes(step.status));
  return (
    <Strip look="plain" actions={<Command>{`agentloupe resume ${run.id}`}</Command>}>
      <Icon sign="int" /> <b>{t('status.interrupted')}</b> {t('run.interrupted', { n: run.events })}{' '}
      {writes.map(step => (
        <span key={step.idx}>
          {t('run.openWrite')}{' '}
          <Link to="/runs/$id" params={{ id: run.id }} search={{ step: step.idx }} className="mono">
            <RunText>{step.name}</RunText>
          </Link>
          , {t('step.title', { step: step.idx })}.{' '}
          {step.call_id !== null && (
            <Link to="/effects" search={{ run: run.id, call: step.call_id }}>
              {t('effects.settle')}
            </Link>
          )}{' '}
        </span>
      ))}
      {t('run.interrupted.hint')}
    </Strip>
  );
}

function Failed({ run, error }: { readonly run: RunDetail; readonly error: string }) {
  const { t } = useWords();
  const last = useLastSteps(run).data?.items.findLast(step => step.forkable);
  return (
    <Strip
      look="error"
      actions={
        last && (
          <Link to="/runs/$id/fork" params={{ id: run.id }} search={{ from: last.idx }} className="btn s fork">
            <Icon sign="fork" />
            {t('run.forkFrom', { step: last.idx })}
          </Link>
        )
      }
    >
      <RunText>{t('run.failed', { error, n: run.steps })}</RunText>
    </Strip>
  );
}

/** What was not recorded, with the recorder's reasons, and what cannot be done for that. */
function Coverage({ run }: { readonly run: RunDetail }) {
  const { t } = useWords();
  if (run.erased) {
    return (
      <Strip look="plain">
        <Tag look="made">{t('coverage.limited_replay')}</Tag> {t('run.limited')} {t('run.limitedOff')}
      </Strip>
    );
  }
  if (run.coverage === 'full') return null;
  return (
    <Strip look={run.coverage === 'lossy' ? 'error' : 'plain'}>
      <CoverageTag coverage={run.coverage} /> {t(`run.means.${run.coverage}`)}{' '}
      {run.coverage_notes.map(note => (
        <span key={note} className="t2">
          <Said>{note}</Said>.{' '}
        </span>
      ))}
    </Strip>
  );
}
