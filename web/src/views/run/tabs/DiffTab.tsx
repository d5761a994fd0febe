import { useQuery } from '@tanstack/react-query';
import { get, path } from '../../../api/client';
import type { Message, RunDetail, StepDiff } from '../../../api/types';
import { useWords } from '../../../base/words';
import { counted, type MessageChange, type PlaceChange, type ToolChange } from '../../../model/diff';
import { Places, Words } from '../../../widgets/diff';
import { Failure, Loading } from '../../../widgets/states';
import { Tag } from '../../../widgets/tags';
import type { PanelProps } from '../Inspector';
import { MessageBox, useMessages } from './MessagesTab';

function useDiff(run: RunDetail, step: number, enabled: boolean) {
  return useQuery({
    queryKey: ['run', run.id, 'step', step, 'diff'],
    queryFn: ({ signal }) => get<StepDiff>(path`/api/runs/${run.id}/steps/${step}/diff`, signal),
    enabled,
  });
}

/** The messages that are other than in the model step before, word by word: of a fork's first step what it changed. */
export function ChangedWords({ run, step }: { readonly run: RunDetail; readonly step: number }) {
  const found = useDiff(run, step, true);
  const changes = (found.data?.messages ?? []) as unknown as readonly MessageChange[];
  return changes
    .filter(change => change.op === 'changed' && change.words)
    .map(change => (
      <pre key={change.right} className="box in words">
        <Words words={change.words ?? []} />
      </pre>
    ));
}

/** What differs from the model step before. */
export function DiffTab({ run, detail }: PanelProps) {
  const { t } = useWords();
  const step = detail.idx;
  const model = detail.kind === 'llm';
  const found = useDiff(run, step, model);
  const messages = useMessages(run, step, model);
  if (!model) return <p className="panel note">{t('diff.notModel')}</p>;
  if (found.isError) return <Failure error={found.error} again={() => void found.refetch()} />;
  if (!found.data) return <Loading what={t('tab.diff')} rows={6} />;
  if (found.data.left === null) return <p className="panel note">{t('diff.first')}</p>;
  const changes = found.data.messages as unknown as readonly MessageChange[];
  const tools = found.data.tools as unknown as readonly ToolChange[];
  const parameters = found.data.parameters as unknown as readonly PlaceChange[];
  const n = counted(changes);
  return (
    <section className="panel">
      <h3>{t('diff.title', { step: String(step), other: String(found.data.left) })}</h3>
      <p className="note counts">
        {t('diff.counts', { same: n.same, changed: n.changed, added: n.added, removed: n.removed })}{' '}
        {!tools.length && !parameters.length && t('diff.same')}
      </p>
      {changes.map((change, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: messages are in a fixed order
        <Changed key={at} change={change} message={messages.data?.items.find(one => placeOf(one) === change.right)} />
      ))}
      {parameters.length > 0 && (
        <div className="sec">
          <h3>{t('diff.parameters')}</h3>
          <div className="box">
            <Places changes={parameters} />
          </div>
        </div>
      )}
      {tools.length > 0 && <Tools tools={tools} />}
    </section>
  );
}

/** The place of a message in its list, as the diff counts it. */
function placeOf(message: Message): number | null {
  const place = /\/(\d+)$/.exec(message.path);
  return place ? Number(place[1]) : null;
}

function Changed({ change, message }: { readonly change: MessageChange; readonly message: Message | undefined }) {
  const { t } = useWords();
  if (change.op === 'same') return null;
  if (change.op === 'added') return message ? <MessageBox message={{ ...message, new: true }} /> : null;
  return (
    <div className={`msg ${change.op === 'changed' ? 'nw2' : ''}`}>
      <div>
        <span>{change.role}</span>
        <span className="grow" />
        <Tag look={change.op === 'changed' ? 'new' : 'kept'}>
          {t(change.op === 'changed' ? 'diff.changed' : 'diff.gone')}
        </Tag>
      </div>
      {change.words && (
        <pre>
          <Words words={change.words} />
        </pre>
      )}
      {change.changes && <Places changes={change.changes} />}
    </div>
  );
}

function Tools({ tools }: { readonly tools: readonly ToolChange[] }) {
  const { t } = useWords();
  return (
    <div className="sec">
      <h3>{t('diff.tools')}</h3>
      {tools.map(tool => (
        <div key={tool.name} className={`msg ${tool.op === 'removed' ? '' : 'nw2'}`}>
          <div>
            <span className="mono">{tool.name}</span>
            <span className="grow" />
            <Tag look={tool.op === 'removed' ? 'kept' : 'new'}>
              {t(tool.op === 'removed' ? 'diff.gone' : tool.op === 'added' ? 'diff.new' : 'diff.changed')}
            </Tag>
          </div>
          {tool.changes && <Places changes={tool.changes} />}
        </div>
      ))}
    </div>
  );
}
