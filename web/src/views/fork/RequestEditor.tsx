import { type ReactNode, useState } from 'react';
import { useWords } from '../../base/words';

import { nameIn, problems } from '../../model/draft';
import {
  editable,
  messagesIn,
  newMessage,
  newTool,
  restOf,
  toolName,
  toolsAreNamed,
  toolsIn,
} from '../../model/request';
import { Seg } from '../../widgets/controls';
import { Icon } from '../../widgets/Icon';
import { Kind } from '../../widgets/tags';
import { RunText } from '../../widgets/text';
import { Editor } from './Editor';
import type { PartProps } from './ForkPage';

type Tab = 'messages' | 'tools' | 'json';

/** The kind of a fault that stands in each tab. */
const FAULTS = { messages: 'message', tools: 'tool', json: 'rest' } as const satisfies Record<Tab, string>;

/** The recorded request beside what is sent: prompt and messages, tools, and everything else as JSON. */
export function RequestEditor({ children, ...props }: PartProps & { readonly children: ReactNode }) {
  const { t } = useWords();
  const { dialog, draft } = props;
  const [tab, setTab] = useState<Tab>('messages');
  const named = toolsAreNamed(dialog.request, dialog.form);
  const messages = messagesIn(dialog.request).length - draft.removed.length + draft.added.length;
  const tools = toolsIn(dialog.request).length - draft.removedTools.length + draft.addedTools.length;
  const found = problems(draft, dialog);
  const choice = (value: Tab, label: string) => {
    const faults = found.filter(problem => problem.part === FAULTS[value]).length;
    return { value, label: faults > 0 ? <Faulty faults={faults}>{label}</Faulty> : label };
  };
  return (
    <>
      <div className="fsec reqtabs">
        <Kind kind="llm" />
        <span className="nw">{t('fork.request', { step: dialog.from_step })}</span>
        <Seg<Tab>
          label={t('fork.parts')}
          value={tab}
          choices={[
            choice('messages', t('fork.tab.messages', { n: messages })),
            ...(named ? [choice('tools', t('fork.tab.tools', { n: tools }))] : []),
            choice('json', t('fork.tab.json')),
          ]}
          onChoose={setTab}
        />
        <span className="grow" />
        {children}
      </div>
      {tab === 'messages' && <Messages {...props} />}
      {tab === 'tools' && <Tools {...props} />}
      {tab === 'json' && <Rest {...props} />}
      <p className="note">{t('fork.rest')}</p>
    </>
  );
}

/** The name of a tab in which something keeps the fork from being started. */
function Faulty({ faults, children }: { readonly faults: number; readonly children: string }) {
  const { t } = useWords();
  return (
    <span className="st error">
      {children}
      <Icon sign="error" />
      <span className="vh">{t('fork.faults', { n: faults })}</span>
    </span>
  );
}

/** From the start the agent's own code makes every request: there is none to edit yet, only instructions to put in. */
export function FromStart({ dialog, draft, onChange, children }: PartProps & { readonly children: ReactNode }) {
  const { t } = useWords();
  return (
    <>
      <div className="fsec reqtabs">
        <span>{t('fork.startSay')}</span>
        <span className="grow" />
        {children}
      </div>
      {dialog.model !== null && (
        <label className="field">
          <span className="lbl">{t('fork.startPrompt')}</span>
          <textarea
            className="inp"
            rows={8}
            value={draft.prompt ?? ''}
            onChange={event => onChange({ prompt: event.target.value || null })}
          />
        </label>
      )}
    </>
  );
}

/** What is open in the editor: the prompt, a recorded one by its place or name, or an added one. */
type Open<Place> = 'prompt' | { readonly at: Place } | { readonly added: number };

interface ChipProps {
  readonly on: boolean;
  readonly changed?: boolean;
  readonly gone?: boolean;
  readonly isNew?: boolean;
  readonly onOpen: () => void;
  readonly children: string;
}

function PartChip({ on, changed = false, gone = false, isNew = false, onOpen, children }: ChipProps) {
  const { t } = useWords();
  const text = <RunText>{children}</RunText>;
  return (
    <button type="button" className={`chip ${on ? 'on' : ''}`} aria-pressed={on} onClick={onOpen}>
      {gone ? <del>{text}</del> : isNew ? <ins>{text}</ins> : text}
      {changed && <span title={t('fork.changed')}>•</span>}
      {(changed || gone || isNew) && (
        <span className="vh"> {t(gone ? 'fork.gone' : isNew ? 'fork.new' : 'fork.changed')}</span>
      )}
    </button>
  );
}

function Messages({ dialog, draft, onChange }: PartProps) {
  const { t } = useWords();
  const recorded = messagesIn(dialog.request);
  const hasPrompt = dialog.system_prompt !== null;
  const [open, setOpen] = useState<Open<number>>(hasPrompt || recorded.length === 0 ? 'prompt' : { at: 0 });
  const chosen = open !== 'prompt' && 'added' in open && !draft.added[open.added] ? 'prompt' : open;
  const isPrompt = (at: number) => hasPrompt && at === 0 && ['system', 'developer'].includes(roleOf(recorded[0]));
  const add = () => {
    const at = chosen === 'prompt' ? recorded.length : 'at' in chosen ? chosen.at + 1 : draft.added[chosen.added]?.at;
    onChange({ added: [...draft.added, { at: at ?? recorded.length, text: editable(newMessage(dialog.form)) }] });
    setOpen({ added: draft.added.length });
  };
  return (
    <>
      {chosen === 'prompt' ? (
        <Editor
          key="prompt"
          name={t('fork.system')}
          original={dialog.system_prompt ?? ''}
          text={draft.prompt}
          form="text"
          onChange={prompt => onChange({ prompt })}
        />
      ) : 'at' in chosen ? (
        <OneMessage
          key={chosen.at}
          at={chosen.at}
          message={recorded[chosen.at]}
          dialog={dialog}
          draft={draft}
          onChange={onChange}
        />
      ) : (
        <Editor
          key={`added ${chosen.added}`}
          name={t('fork.new')}
          original=""
          text={draft.added[chosen.added]?.text ?? ''}
          form="object"
          onChange={text =>
            onChange({ added: draft.added.map((one, n) => (n === chosen.added ? { ...one, text: text ?? '' } : one)) })
          }
        >
          <Out
            onOut={() => {
              onChange({ added: draft.added.filter((_, n) => n !== chosen.added) });
              setOpen('prompt');
            }}
          />
        </Editor>
      )}
      <div className="row wrap parts">
        <PartChip on={chosen === 'prompt'} changed={draft.prompt !== null} onOpen={() => setOpen('prompt')}>
          {t('fork.system')}
        </PartChip>
        {Array.from({ length: recorded.length + 1 }, (_, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: messages of one request have no other name than their place
          <span key={at} className="contents">
            {draft.added.map(
              (one, n) =>
                one.at === at && (
                  <PartChip
                    // biome-ignore lint/suspicious/noArrayIndexKey: they are told apart by their order only
                    key={n}
                    isNew
                    on={chosen !== 'prompt' && 'added' in chosen && chosen.added === n}
                    onOpen={() => setOpen({ added: n })}
                  >
                    {`+ ${roleOf(safely(one.text))}`}
                  </PartChip>
                ),
            )}
            {at < recorded.length && !isPrompt(at) && (
              <PartChip
                on={chosen !== 'prompt' && 'at' in chosen && chosen.at === at}
                changed={draft.messages[at] !== undefined}
                gone={draft.removed.includes(at)}
                onOpen={() => setOpen({ at })}
              >
                {t('fork.message', { role: roleOf(recorded[at]), n: at })}
              </PartChip>
            )}
          </span>
        ))}
        <button type="button" className="btn s q" onClick={add}>
          {t('fork.addMessage')}
        </button>
      </div>
    </>
  );
}

function OneMessage({ at, message, draft, onChange }: PartProps & { readonly at: number; readonly message: unknown }) {
  const { t } = useWords();
  const name = t('fork.message', { role: roleOf(message), n: at });
  if (draft.removed.includes(at)) {
    return <Gone name={name} onBack={() => onChange({ removed: draft.removed.filter(one => one !== at) })} />;
  }
  return (
    <Editor
      name={name}
      original={editable(message)}
      text={draft.messages[at] ?? null}
      form="object"
      onChange={text => onChange({ messages: without(draft.messages, at, text) })}
    >
      <Out onOut={() => onChange({ removed: [...draft.removed, at] })} />
    </Editor>
  );
}

function Tools({ dialog, draft, onChange }: PartProps) {
  const { t } = useWords();
  const recorded = toolsIn(dialog.request).map(tool => ({ tool, name: toolName(tool) ?? '' }));
  const [open, setOpen] = useState<Open<string>>(recorded[0] ? { at: recorded[0].name } : 'prompt');
  const chosen = open !== 'prompt' && 'added' in open && draft.addedTools[open.added] === undefined ? 'prompt' : open;
  const add = () => {
    onChange({ addedTools: [...draft.addedTools, editable(newTool(dialog.form))] });
    setOpen({ added: draft.addedTools.length });
  };
  return (
    <>
      {chosen === 'prompt' ? (
        <p className="box in t2">{t('fork.noTools')}</p>
      ) : 'added' in chosen ? (
        <Editor
          key={`added ${chosen.added}`}
          name={t('fork.new')}
          original=""
          text={draft.addedTools[chosen.added] ?? ''}
          form="object"
          onChange={text =>
            onChange({ addedTools: draft.addedTools.map((one, n) => (n === chosen.added ? (text ?? '') : one)) })
          }
        >
          <Out
            onOut={() => {
              onChange({ addedTools: draft.addedTools.filter((_, n) => n !== chosen.added) });
              setOpen(recorded[0] ? { at: recorded[0].name } : 'prompt');
            }}
          />
        </Editor>
      ) : draft.removedTools.includes(chosen.at) ? (
        <Gone
          name={chosen.at}
          onBack={() => onChange({ removedTools: draft.removedTools.filter(one => one !== chosen.at) })}
        />
      ) : (
        <Editor
          key={chosen.at}
          name={chosen.at}
          original={editable(recorded.find(one => one.name === chosen.at)?.tool)}
          text={draft.tools[chosen.at] ?? null}
          form="object"
          onChange={text => onChange({ tools: without(draft.tools, chosen.at, text) })}
        >
          <Out onOut={() => onChange({ removedTools: [...draft.removedTools, chosen.at] })} />
        </Editor>
      )}
      <div className="row wrap parts">
        {recorded.map(({ name }) => (
          <PartChip
            key={name}
            on={chosen !== 'prompt' && 'at' in chosen && chosen.at === name}
            changed={draft.tools[name] !== undefined}
            gone={draft.removedTools.includes(name)}
            onOpen={() => setOpen({ at: name })}
          >
            {name}
          </PartChip>
        ))}
        {draft.addedTools.map((text, n) => (
          <PartChip
            // biome-ignore lint/suspicious/noArrayIndexKey: they are told apart by their order only
            key={n}
            isNew
            on={chosen !== 'prompt' && 'added' in chosen && chosen.added === n}
            onOpen={() => setOpen({ added: n })}
          >
            {`+ ${nameIn(text) ?? '?'}`}
          </PartChip>
        ))}
        <button type="button" className="btn s q" onClick={add}>
          {t('fork.addTool')}
        </button>
      </div>
    </>
  );
}

function Rest({ dialog, draft, onChange }: PartProps) {
  const { t } = useWords();
  return (
    <>
      <Editor
        name={t('fork.tab.json')}
        original={editable(restOf(dialog.request, dialog.form))}
        text={draft.rest}
        form="object"
        onChange={rest => onChange({ rest })}
      />
      <p className="note parts">{t('fork.restSay')}</p>
    </>
  );
}

function Gone({ name, onBack }: { readonly name: string; readonly onBack: () => void }) {
  const { t } = useWords();
  return (
    <div className="box in row">
      <span>
        <RunText>{t('fork.takenOut', { name })}</RunText>
      </span>
      <span className="grow" />
      <button type="button" className="btn s" onClick={onBack}>
        {t('fork.putBack')}
      </button>
    </div>
  );
}

function Out({ onOut }: { readonly onOut: () => void }) {
  const { t } = useWords();
  return (
    <button type="button" className="more" onClick={onOut}>
      {t('fork.takeOut')}
    </button>
  );
}

function without<K extends string | number>(
  texts: Readonly<Record<K, string>>,
  name: K,
  text: string | null,
): Readonly<Record<K, string>> {
  const { [name]: _, ...others } = texts;
  return (text === null ? others : { ...others, [name]: text }) as Readonly<Record<K, string>>;
}

function safely(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function roleOf(message: unknown): string {
  const said = (message as { role?: unknown; type?: unknown } | null) ?? {};
  if ('role' in said && typeof said.role === 'string') return said.role;
  return 'type' in said && typeof said.type === 'string' ? said.type : '?';
}
