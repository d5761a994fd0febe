import type { ComparedHead, Delta } from '../../api/types';
import { count, dollars, duration } from '../../base/format';
import { type Speech, useWords } from '../../base/words';

const SHOWN = ['steps', 'misses', 'errors', 'input_tokens', 'output_tokens', 'cost', 'seconds'] as const;
type Figure = (typeof SHOWN)[number];

/** Figures of both sides, and what they differ by. */
export function Deltas({ head, total }: { readonly head: ComparedHead; readonly total: number }) {
  const speech = useWords();
  const { t } = speech;
  const differ = total - (head.counts['same'] ?? 0);
  return (
    <section className="delta" aria-label={t('compare.title')}>
      <div>
        <span className="lbl">{t('compare.first')}</span>
        <b>{head.first ? t('step.title', { step: String(head.first.left_idx) }) : t('compare.none')}</b>
        <span className="dim">{t('compare.rowsDiffer', { n: differ, total })}</span>
      </div>
      {SHOWN.map(name => {
        const delta = head.deltas[name];
        return delta ? <OneDelta key={name} name={name} delta={delta} speech={speech} /> : null;
      })}
      <div>
        <span className="lbl">{t('compare.oneRun')}</span>
        <b>{t('compare.oneAgainst')}</b>
        <span className="dim">{t('compare.noVerdict')}</span>
      </div>
    </section>
  );
}

interface OneDeltaProps {
  readonly name: Figure;
  readonly delta: Delta;
  readonly speech: Speech;
}

function OneDelta({ name, delta, speech }: OneDeltaProps) {
  const { t } = speech;
  const unknown = t('state.unknown');
  const [left, right, change] = [delta.left, delta.right, delta.change].map(value => shown(name, value, speech));
  if (left === right && (name === 'misses' || name === 'errors')) return null;
  return (
    <div>
      <span className="lbl">{t(`compare.delta.${name}`)}</span>
      <b>
        {left ?? unknown} → {right ?? unknown}
      </b>
      <span className="dim">{change === null ? unknown : Number(delta.change) > 0 ? `+${change}` : change}</span>
    </div>
  );
}

function shown(name: Figure, value: number | string | null, { language }: Speech): string | null {
  if (value === null) return null;
  if (name === 'cost') return dollars(String(value));
  if (name !== 'seconds') return count(Number(value), language);
  const seconds = Number(value);
  return seconds < 0 ? `−${duration(-seconds, language)}` : duration(seconds, language);
}
