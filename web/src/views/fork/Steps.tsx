import { useState } from 'react';
import { useWords } from '../../base/words';
import type { Draft } from '../../model/draft';
import { type Line, linesOf, namesOf, typesIn } from '../../model/kept';
import { Failure, Loading } from '../../widgets/states';
import { Kind, SourceTag, Tag } from '../../widgets/tags';
import { RunText } from '../../widgets/text';
import { Editor } from './Editor';
import type { PartProps } from './ForkPage';
import { useCardsBefore, useResult } from './queries';

/** Kept rows that are shown at once; earlier ones are a click away. */
const SHOWN = 8;

/** The steps above the cut, each with a way to change the result that it shall have had; and the recorded ones below it. */
export function Steps({ dialog, draft, onChange, part }: PartProps & { readonly part: 'kept' | 'later' }) {
  const { t } = useWords();
  const [all, setAll] = useState(false);
  const cards = useCardsBefore(dialog.run_id, dialog.from_step);
  if (cards.isError) return <Failure error={cards.error} again={() => void cards.refetch()} />;
  if (!cards.data) return part === 'kept' ? <Loading what={t('fork.keptRow', { n: dialog.kept.steps })} /> : null;
  const pages = [...cards.data.pages].reverse();
  const lines = linesOf(pages.flatMap(page => page.items));
  const known = lines.filter(line =>
    part === 'kept' ? line.step < dialog.from_step : line.step > dialog.from_step && line.kind === 'tool',
  );
  const shown = all || part === 'later' ? known : known.slice(-SHOWN);
  const hidden = part === 'kept' && (known.length > shown.length || cards.hasNextPage);
  const old = draft.prompt !== null;
  if (shown.length === 0) return null;
  return (
    <div className={part === 'kept' ? 'lane pre' : ''}>
      {part === 'kept' && <div className="g" />}
      <div className="keptbox">
        {hidden && (
          <button
            type="button"
            className="btn s q"
            disabled={cards.isFetchingNextPage}
            onClick={() => {
              if (all) void cards.fetchNextPage();
              setAll(true);
            }}
          >
            {t('fork.earlier', { n: shown.length, total: dialog.kept.steps })}
          </button>
        )}
        {shown.map(line => (
          <Row key={line.step} line={line} kept={part === 'kept'} old={old} {...{ dialog, draft, onChange }} />
        ))}
      </div>
    </div>
  );
}

interface RowProps extends PartProps {
  readonly line: Line;
  readonly kept: boolean;
  /** The prompt is changed, so an answer above the cut was made with the old one. */
  readonly old: boolean;
}

function Row({ line, kept, old, dialog, draft, onChange }: RowProps) {
  const { t } = useWords();
  const changed = draft.results[line.step] !== undefined;
  const [open, setOpen] = useState(false);
  return (
    <>
      <div className="keptcall">
        <span className="no">{line.step}</span>
        <Kind kind={line.kind} />
        <span className="sig ell">
          <Said line={line} />
        </span>
        <span className="row nw">
          {line.kind === 'llm' && old && <span className="note hide-n">{t('fork.oldPrompt')}</span>}
          {line.kind === 'tool' && (
            <button
              type="button"
              className="btn s q"
              aria-expanded={open}
              aria-label={t(open ? 'fork.closeResultOf' : 'fork.changeResultOf', { step: line.step, name: line.name })}
              onClick={() => setOpen(!open)}
            >
              {t(open ? 'fork.closeResult' : 'fork.changeResult')}
            </button>
          )}
          {changed ? <Tag look="new">{t('fork.changed')}</Tag> : kept && <SourceTag source="recorded" />}
        </span>
      </div>
      {open && <Result line={line} dialog={dialog} draft={draft} onChange={onChange} />}
    </>
  );
}

function Said({ line }: { readonly line: Line }) {
  const { t } = useWords();
  if (line.kind === 'llm') {
    return line.asked.length ? (
      <>
        {t('fork.modelAsked')}{' '}
        <b>
          <RunText>{namesOf(line.asked)}</RunText>
        </b>
      </>
    ) : (
      <>
        {t('fork.modelSaid')} <RunText>{line.given}</RunText>
      </>
    );
  }
  return (
    <>
      <b>
        <RunText>{line.name}</RunText>
      </b>{' '}
      <RunText>{line.given}</RunText>
      {line.result !== null && (
        <span className={line.failed ? 'accent bad' : 't2'}>
          {' → '}
          <RunText>{line.result}</RunText>
        </span>
      )}
    </>
  );
}

function Result({ line, dialog, draft, onChange }: PartProps & { readonly line: Line }) {
  const { t } = useWords();
  const recorded = useResult(dialog.run_id, line.step, !line.failed);
  if (recorded.isError) return <Failure error={recorded.error} again={() => void recorded.refetch()} />;
  if (!line.failed && recorded.data === undefined) return <Loading rows={2} />;
  const types = typesIn(recorded.data ?? 'null');
  return (
    <div className="resultbox">
      <Editor
        name={t('fork.resultOf', { step: line.step })}
        original={recorded.data ?? ''}
        text={draft.results[line.step] ?? null}
        form="value"
        onChange={text => onChange({ results: withResult(draft, line.step, text) })}
      />
      <p className="note">{t('fork.resultSay')}</p>
      {types.length > 0 && <p className="st miss">{t('fork.resultTypes', { types: types.join(', ') })}</p>}
    </div>
  );
}

function withResult(draft: Draft, step: number, text: string | null): Draft['results'] {
  const { [step]: _, ...others } = draft.results;
  return text === null ? others : { ...others, [step]: text };
}
