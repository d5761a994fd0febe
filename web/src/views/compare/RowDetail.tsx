import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { address, get } from '../../api/client';
import type { ComparedRow } from '../../api/types';
import { jsonText } from '../../base/json';
import { useWords } from '../../base/words';
import type { MessageChange, PlaceChange, ToolChange, Word } from '../../model/diff';
import { Places, type Side, Words } from '../../widgets/diff';
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

/** What differs in one row, with the values: each side says what is its own. */
export function RowDetail({ a, b, row }: RowDetailProps) {
  const found = useQuery({
    queryKey: ['compare', a, b, 'row', row.row],
    queryFn: ({ signal }) => get<Detail>(address('/api/compare/row', { a, b, row: row.row }), signal),
  });
  if (found.isError) return <Failure error={found.error} again={() => void found.refetch()} />;
  if (!found.data) return <Loading rows={2} />;
  const model = row.left?.kind === 'llm' || row.right?.kind === 'llm';
  return (
    <div className="detail ab">
      <Half detail={found.data} model={model} side="left" />
      <span />
      <Half detail={found.data} model={model} side="right" />
    </div>
  );
}

interface HalfProps {
  readonly detail: Detail;
  readonly model: boolean;
  readonly side: Side;
}

function Half({ detail, model, side }: HalfProps) {
  const { t } = useWords();
  const { words } = detail;
  const answer = detail.answer?.[0]?.op === 'changed' ? detail.answer[0] : undefined;
  const gone = side === 'left' ? 'added' : 'removed';
  const asked = (detail.messages ?? []).filter(
    change => change.op !== 'same' && change.op !== gone && (change.words || change.changes),
  );
  const tools = (detail.tools ?? []).filter(change => change.op !== 'same' && change.op !== gone);
  const [input, output] = model ? [[], []] : [detail.input ?? [], detail.output ?? []];
  const lone = detail.left === null || detail.right === null;
  if (lone) return detail[side] === null ? <div /> : <Lone output={detail[side].output} />;
  return (
    <div className="half">
      {asked.length > 0 && (
        <Part title={t('compare.newInput')}>
          {asked.map((change, at) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: messages are in a fixed order
            <Message key={at} change={change} side={side} />
          ))}
        </Part>
      )}
      {tools.length > 0 && (
        <Part title={t('compare.tools')}>
          {tools.map(change => (
            <div key={change.name}>
              <b className="mono">
                {change.op === 'changed' ? (
                  <RunText>{change.name}</RunText>
                ) : side === 'left' ? (
                  <del>
                    <RunText>{change.name}</RunText>
                  </del>
                ) : (
                  <ins>
                    <RunText>{change.name}</RunText>
                  </ins>
                )}
              </b>
              {change.changes && <Places changes={change.changes} side={side} />}
            </div>
          ))}
        </Part>
      )}
      {input.length > 0 && (
        <Part title={t('compare.input')}>
          <Places changes={input} side={side} />
        </Part>
      )}
      {answer ? (
        <Part title={t('compare.output')}>
          <Message change={answer} side={side} />
        </Part>
      ) : (
        (words || output.length > 0) && (
          <Part title={t('compare.output')}>
            {words ? <Words words={words} side={side} /> : <Places changes={output} side={side} />}
          </Part>
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

function Message({ change, side }: { readonly change: MessageChange; readonly side: Side }) {
  return (
    <>
      {change.words && (
        <pre>
          <Words words={change.words} side={side} />
        </pre>
      )}
      {change.changes && <Places changes={change.changes} side={side} />}
    </>
  );
}

/** A step that only one side has: what came of it. */
function Lone({ output }: { readonly output: unknown }) {
  const { t } = useWords();
  return (
    <Part title={t('compare.output')}>
      <pre>
        <RunText>{typeof output === 'string' ? output : jsonText(output ?? null, 2)}</RunText>
      </pre>
    </Part>
  );
}
