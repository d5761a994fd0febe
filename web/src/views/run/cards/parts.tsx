import type { Cut } from '../../../api/types';
import { dollars, duration } from '../../../base/format';
import { useWords } from '../../../base/words';
import { RunText } from '../../../widgets/text';
import { useCard } from './CardView';

/** A text that may have been cut; how much is missing is said, and leads to the whole. */
export function CutText({ cut }: { readonly cut: Cut }) {
  const { t } = useWords();
  const { onTab } = useCard();
  return (
    <>
      <span className="said">
        <RunText>{cut.text}</RunText>
      </span>
      {cut.missing > 0 && (
        <button type="button" className="more" onClick={() => onTab('raw')}>
          {t('state.missing', { n: cut.missing })}
        </button>
      )}
    </>
  );
}

/** Time, tokens and cost of a step in one line. */
export function Meta({ step, parallel = 0 }: { readonly step: number; readonly parallel?: number }) {
  const { t, language } = useWords();
  const { header: at } = useCard();
  const header = at(step);
  if (!header) return null;
  const { input_tokens: i, output_tokens: o } = header;
  const shown = [
    duration(header.seconds, language),
    i === null && o === null ? null : t('card.inOut', { i: i ?? '?', o: o ?? '?' }),
    dollars(header.cost),
    parallel > 1 ? t('card.parallel', { n: parallel }) : null,
  ];
  return <span className="mt ell">{shown.filter(part => part !== null).join(' · ')}</span>;
}
