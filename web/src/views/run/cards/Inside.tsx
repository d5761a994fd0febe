import { useEffect, useState } from 'react';
import { useWords } from '../../../base/words';
import { Failure, Loading } from '../../../widgets/states';
import { useCards } from '../queries';
import { CardView, useCard } from './CardView';

const MORE = 50;

/** What lies inside a sub-agent, unfolded in place. */
export function Inside({ step, label }: { readonly step: number; readonly label: string }) {
  const { t } = useWords();
  const { run } = useCard();
  const cards = useCards(run.id, true, step);
  const [shown, setShown] = useState(MORE);
  const { look } = cards;
  useEffect(() => look(0, shown - 1), [look, shown]);
  if (cards.error) return <Failure error={cards.error} again={cards.again} />;
  if (cards.total === undefined) return <Loading what={label} />;
  const known = Array.from({ length: Math.min(shown, cards.total) }, (_, at) => cards.at(at));
  return (
    <section className="inside" aria-label={label}>
      {known.map(card => card && <CardView key={card.at} card={card} />)}
      {cards.total > shown && (
        <button type="button" className="btn s q" onClick={() => setShown(shown + MORE)}>
          {t('run.moreRuns', { n: shown, total: cards.total })}
        </button>
      )}
    </section>
  );
}
