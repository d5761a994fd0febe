import { jsonText } from '../base/json';
import { type PlaceChange, shortened, type Word } from '../model/diff';
import { RunText } from './text';

/** One of the two that are compared: what went is on the left, what came on the right. */
export type Side = 'left' | 'right';

interface WordsProps {
  readonly words: readonly Word[];
  readonly whole?: boolean;
  /** Only what this side says; without it both are shown in one text. */
  readonly side?: Side;
}

/** A text word by word: what went is grey and struck through, what came is underlined in the accent. */
export function Words({ words, whole = false, side }: WordsProps) {
  const other = side === undefined ? null : side === 'left' ? '+' : '-';
  return (
    <>
      {(whole ? words : shortened(words)).map(([op, text], at) => {
        if (op === other) return null;
        const shown = <RunText>{text}</RunText>;
        // biome-ignore-start lint/suspicious/noArrayIndexKey: words of one text have no other name than their place
        if (op === '-') return <del key={at}>{shown}</del>;
        if (op === '+') return <ins key={at}>{shown}</ins>;
        return <span key={at}>{shown}</span>;
        // biome-ignore-end lint/suspicious/noArrayIndexKey: see above
      })}
    </>
  );
}

/** Changed places of a JSON value, each with what it was and what it is. */
export function Places({ changes, side }: { readonly changes: readonly PlaceChange[]; readonly side?: Side }) {
  return (
    <div className="dl">
      {changes.map((change, at) =>
        change.more ? (
          // biome-ignore lint/suspicious/noArrayIndexKey: changes are in a fixed order
          <div key={at}>
            <span />
            <span>…</span>
          </div>
        ) : (
          // biome-ignore lint/suspicious/noArrayIndexKey: changes are in a fixed order
          <Place key={at} change={change} side={side} />
        ),
      )}
    </div>
  );
}

function Place({ change, side }: { readonly change: PlaceChange; readonly side: Side | undefined }) {
  return (
    <>
      <div className="at">
        <span />
        <span>
          <RunText>{change.path}</RunText>
        </span>
      </div>
      {side !== 'right' && 'expected' in change && (
        <div className="o">
          <span>−</span>
          <span>
            <RunText>{jsonText(change.expected)}</RunText>
          </span>
        </div>
      )}
      {side !== 'left' && 'actual' in change && (
        <div className="n">
          <span>+</span>
          <span>
            <RunText>{jsonText(change.actual)}</RunText>
          </span>
        </div>
      )}
    </>
  );
}
