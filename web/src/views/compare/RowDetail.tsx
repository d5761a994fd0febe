import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { address, get } from '../../api/client';
import type { ComparedRow } from '../../api/types';
import { jsonText } from '../../base/json';
import { useWords } from '../../base/words';
import type { MessageChange, PlaceChange, ToolChange, Word } from '../../model/diff';
import { Places, Words } from '../../widgets/diff';
import { Failure, Loading } from '../../widgets/states';
import { RunText } from '../../widgets/text';

interface Detail {
  readonly input: readonly PlaceChange[] | null;
  readonly output: readonly PlaceChange[] | null;
  readonly words: readonly Word[] | null;
  readonly messages: readonly MessageChange[] | null;
  readonly answer: readonly MessageChange[] | null;
  readonly tools: readonly ToolChange[] | null;
  readonly left: { readonly output: unknown } | null;
  readonly right: { readonly output: unknown } | null;
}

interface RowDetailProps {
  readonly a: string;
  readonly b: string;
  readonly row: ComparedRow;
}

/** What differs in one row, with the values. */
export function RowDetail({ a, b, row }: RowDetailProps) {
  const { t } = useWords();
  const found = useQuery({
    queryKey: ['compare', a, b, 'row', row.row],
    queryFn: ({ signal }) => get<Detail>(address('/api/compare/row', { a, b, row: row.row }), signal),
  });
  if (found.isError) return <Failure error={found.error} again={() => void found.refetch()} />;
  if (!found.data) return <Loading rows={2} />;
  const { words } = found.data;
  const [messages, answer] = [found.data.messages ?? [], found.data.answer ?? []];
  const [input, output] = [found.data.input ?? [], found.data.output ?? []];
  const asked = messages.filter(change => change.op !== 'same' && (change.words || change.changes));
  const model = row.left?.kind === 'llm' || row.right?.kind === 'llm';
  return (
    <div className="detail">
      {!found.data.left || !found.data.right ? <Lone detail={found.data} /> : null}
      {asked.length > 0 && (
        <Part title={t('compare.input')}>
          {asked.map((change, at) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: messages are in a fixed order
            <Message key={at} change={change} />
          ))}
        </Part>
      )}
      {!model && input.length > 0 && (
        <Part title={t('compare.input')}>
          <Places changes={input} />
        </Part>
      )}
      {answer.length > 0 && answer[0]?.op === 'changed' ? (
        <Part title={t('compare.output')}>
          <Message change={answer[0]} />
        </Part>
      ) : (
        (words || (!model && output.length > 0)) && (
          <Part title={t('compare.output')}>{words ? <Words words={words} /> : <Places changes={output} />}</Part>
        )
      )}
    </div>
  );
}

function Part({ title, children }: { readonly title: string; readonly children: ReactNode }) {
  return (
    <div className="dpart">
      <h3>{title}</h3>
      {children}
    </div>
  );
}

function Message({ change }: { readonly change: MessageChange }) {
  return (
    <>
      {change.words && (
        <pre>
          <Words words={change.words} />
        </pre>
      )}
      {change.changes && <Places changes={change.changes} />}
    </>
  );
}

/** A step that only one side has: what came of it. */
function Lone({ detail }: { readonly detail: Detail }) {
  const { t } = useWords();
  const output = (detail.left ?? detail.right)?.output;
  return (
    <Part title={t('compare.output')}>
      <pre>
        <RunText>{typeof output === 'string' ? output : jsonText(output ?? null, 2)}</RunText>
      </pre>
    </Part>
  );
}
