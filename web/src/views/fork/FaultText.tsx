import { useWords } from '../../base/words';
import type { Problem } from '../../model/draft';

/** What is wrong with a text, with the place: `not JSON at line 3, column 7`. */
export function FaultText({ fault }: { readonly fault: Problem['fault'] }) {
  const { t } = useWords();
  if (typeof fault === 'string') return <>{t(fault)}</>;
  return (
    <>
      {t('fork.bad.json', { line: fault.line, column: fault.column })} <code>{fault.said}</code>
    </>
  );
}
