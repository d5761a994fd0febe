import { useQuery } from '@tanstack/react-query';
import { get, path } from '../../../api/client';
import type { Message, MessagePart, Messages, RunDetail } from '../../../api/types';
import { useWords } from '../../../base/words';
import { Failure, Loading } from '../../../widgets/states';
import { SourceTag, Tag } from '../../../widgets/tags';
import { RunText } from '../../../widgets/text';
import type { PanelProps } from '../Inspector';

export function useMessages(run: RunDetail, step: number, enabled: boolean) {
  return useQuery({
    queryKey: ['run', run.id, 'step', step, 'messages'],
    queryFn: ({ signal }) => get<Messages>(path`/api/runs/${run.id}/steps/${step}/messages?limit=1000`, signal),
    enabled,
  });
}

/** The conversation that a model step was asked, and its answer; what is new in this input is marked. */
export function MessagesTab({ run, detail }: PanelProps) {
  const { t } = useWords();
  const model = detail.kind === 'llm';
  const found = useMessages(run, detail.idx, model);
  if (!model) return <p className="panel note">{t('msg.none')}</p>;
  if (found.isError) return <Failure error={found.error} again={() => void found.refetch()} />;
  if (!found.data) return <Loading what={t('tab.messages')} rows={8} />;
  return (
    <section className="panel">
      {found.data.items.map(message => (
        <MessageBox key={message.index} message={message} />
      ))}
      {found.data.total > found.data.items.length && (
        <p className="note">{t('run.moreRuns', { n: found.data.items.length, total: found.data.total })}</p>
      )}
      {found.data.answer && <MessageBox message={found.data.answer} answer />}
    </section>
  );
}

interface MessageBoxProps {
  readonly message: Message;
  readonly answer?: boolean;
}

export function MessageBox({ message, answer = false }: MessageBoxProps) {
  const { t } = useWords();
  const name = message.parts.find(part => part.type === 'tool_result')?.name;
  return (
    <div className={`msg ${message.new ? 'nw2' : ''}`}>
      <div>
        <span>
          {message.role}
          {name && <> · {name}</>}
        </span>
        <span className="grow" />
        {message.source && <SourceTag source={message.source} />}
        {answer ? <Tag look="new">{t('msg.answer')}</Tag> : message.new && <Tag look="new">{t('msg.new')}</Tag>}
      </div>
      {message.parts.length === 0 && <p className="note">{t('msg.empty')}</p>}
      {message.parts.map((part, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: parts of one message have no other name than their place
        <Part key={at} part={part} />
      ))}
    </div>
  );
}

function Part({ part }: { readonly part: MessagePart }) {
  const { t } = useWords();
  const text = <RunText>{part.text}</RunText>;
  const missing = part.missing > 0 && <span className="dim"> {t('state.missing', { n: part.missing })}</span>;
  switch (part.type) {
    case 'reasoning':
      return (
        <details className="folded">
          <summary>{t('msg.reasoning')}</summary>
          <pre>
            {text}
            {missing}
          </pre>
        </details>
      );
    case 'tool_call':
      return (
        <pre>
          <b>{part.name}</b> {text}
          {missing}
        </pre>
      );
    case 'image':
    case 'other':
      return (
        <pre>
          <span className="dim">[{t(`msg.${part.type}`)}]</span> {text}
        </pre>
      );
    case 'text':
    case 'tool_result':
      return (
        <pre>
          {text}
          {missing}
        </pre>
      );
  }
}
