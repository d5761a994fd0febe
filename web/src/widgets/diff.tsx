import { jsonText } from '../base/json';
import { type PlaceChange, shortened, type Word } from '../model/diff';
import { RunText } from './text';

/** A text word by word: what went is grey and struck through, what came is underlined in the accent. */
export function Words({ words, whole = false }: { readonly words: readonly Word[]; readonly whole?: boolean }) {
  return (
    <>
      {(whole ? words : shortened(words)).map(([op, text], at) => {
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
export function Places({ changes }: { readonly changes: readonly PlaceChange[] }) {
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
          <Place key={at} change={change} />
        ),
      )}
    </div>
  );
}

function Place({ change }: { readonly change: PlaceChange }) {
  return (
    <>
      <div className="at">
        <span />
        <span>
          <RunText>{change.path}</RunText>
        </span>
      </div>
      {'expected' in change && (
        <div className="o">
          <span>−</span>
          <span>
            <RunText>{jsonText(change.expected)}</RunText>
          </span>
        </div>
      )}
      {'actual' in change && (
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
