import { lazy, Suspense, useState } from 'react';
import { useWords } from '../../base/words';
import { type Draft, messagesIn, messageText } from '../../model/draft';
import { Loading } from '../../widgets/states';
import { RunText } from '../../widgets/text';
import type { PartProps } from './ForkPage';

const MergeEditor = lazy(() => import('../../widgets/MergeEditor'));

/** The recorded request beside what is sent: the prompt as text, any other message as JSON. */
export function RequestEditor({ dialog, draft, onChange }: PartProps) {
  const { t } = useWords();
  const messages = messagesIn(dialog.request);
  const [at, setAt] = useState<number | 'prompt'>(dialog.system_prompt === null ? 0 : 'prompt');
  // Counts reverts: the editor begins anew with the recorded text.
  const [round, setRound] = useState(0);
  const prompt = at === 'prompt';
  const original = prompt ? (dialog.system_prompt ?? '') : messageText(messages[at]);
  const text = (prompt ? draft.prompt : draft.messages[at]) ?? original;
  const edit = (next: string) => {
    if (prompt) onChange({ prompt: next === original ? null : next });
    else onChange({ messages: withMessage(draft, at, next === original ? null : next) });
  };
  const changed = text !== original;
  const broken = !prompt && changed && !isJson(text);
  return (
    <>
      <div className="merge">
        <div className="mh">{t('fork.recorded')}</div>
        <div className="mh">
          {t('fork.edited')}
          <span className="grow" />
          {changed && (
            <button
              type="button"
              className="more"
              onClick={() => {
                edit(original);
                setRound(round + 1);
              }}
            >
              {t('fork.revert')}
            </button>
          )}
        </div>
        <Suspense fallback={<Loading rows={4} />}>
          <MergeEditor
            key={`${at} ${round}`}
            original={original}
            text={text}
            labels={[t('fork.recorded'), t('fork.edited')]}
            onChange={edit}
          />
        </Suspense>
      </div>
      {broken && <p className="st error">{t('fork.notJson')}</p>}
      <div className="row wrap parts">
        {dialog.system_prompt !== null && (
          <button
            type="button"
            className={prompt ? 'chip on' : 'chip'}
            aria-pressed={prompt}
            onClick={() => setAt('prompt')}
          >
            {t('fork.system')} {draft.prompt !== null && '•'}
          </button>
        )}
        {messages.map((message, index) =>
          isPrompt(message) && dialog.system_prompt !== null && index === 0 ? null : (
            <button
              // biome-ignore lint/suspicious/noArrayIndexKey: messages of one request have no other name than their place
              key={index}
              type="button"
              className={at === index ? 'chip on' : 'chip'}
              aria-pressed={at === index}
              onClick={() => setAt(index)}
            >
              <RunText>{t('fork.message', { role: roleOf(message), n: index })}</RunText>
              {draft.messages[index] !== undefined && ' •'}
            </button>
          ),
        )}
        <span className="grow" />
        <span className="note">{t('fork.rest')}</span>
      </div>
    </>
  );
}

function withMessage(draft: Draft, at: number, text: string | null): Draft['messages'] {
  const { [at]: _, ...others } = draft.messages;
  return text === null ? others : { ...others, [at]: text };
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function roleOf(message: unknown): string {
  const said = (message as { role?: unknown; type?: unknown } | null) ?? {};
  return typeof said.role === 'string' ? said.role : typeof said.type === 'string' ? said.type : '?';
}

function isPrompt(message: unknown): boolean {
  return ['system', 'developer'].includes(roleOf(message));
}
