import type { RunDetail } from '../../api/types';
import { useWords } from '../../base/words';
import { Strip } from '../../widgets/states';
import { Command } from '../../widgets/text';

/** What must be known before anything below is believed; none of these can be closed. */
export function Strips({ run }: { readonly run: RunDetail }) {
  const { t } = useWords();
  return (
    <>
      {run.badges.chain === 'broken' && (
        <Strip look="error" actions={<Command>{`agentloupe verify ${run.id}`}</Command>}>
          <b>{t('run.damaged')}</b>
        </Strip>
      )}
      {run.status === 'interrupted' && (
        <Strip look="plain" actions={<Command>{`agentloupe resume ${run.id}`}</Command>}>
          <b>{t('status.interrupted')}</b> {t('run.interrupted', { n: run.events })} {t('run.interrupted.hint')}
        </Strip>
      )}
      {run.status === 'waiting' && <Strip>{t('run.waiting')}</Strip>}
      {run.status === 'error' && run.error && (
        <Strip look="error">{t('run.failed', { error: run.error, n: run.steps })}</Strip>
      )}
      {run.coverage === 'lossy' && <Strip look="error">{t('run.lossy')}</Strip>}
      {run.erased && <Strip look="plain">{t('run.limited')}</Strip>}
      {run.counts.miss > 0 && (
        <Strip>
          <b>{t('source.misses', { n: run.counts.miss })}</b>
          {run.hypothetical_from !== null && ` · ${t('run.hypothetical', { step: run.hypothetical_from })}`}
        </Strip>
      )}
    </>
  );
}
