import { useWords } from '../../base/words';
import type { ReplayReport } from '../../model/report';
import { Badge } from '../../widgets/tags';

/** What a replay came to, with the place where it parted. Damage is never called a divergence. */
export function VerdictBadge({ report }: { readonly report: ReplayReport | null }) {
  const { t } = useWords();
  if (!report) return <Badge>{t('replay.noResult')}</Badge>;
  const at = report.divergence?.sequence ?? null;
  const word = t(`report.verdict.${report.verdict}`);
  const agrees = report.verdict === 'pass' || report.verdict === 'reached';
  return (
    <Badge bad={!agrees} sign={agrees ? 'check' : report.verdict === 'damaged' ? 'chain' : 'error'}>
      <b>{at === null ? word : t('report.verdictAt', { verdict: word, event: at, events: report.events })}</b>
    </Badge>
  );
}
