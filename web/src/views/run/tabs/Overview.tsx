import type { ReactNode } from 'react';
import type { StepDetail } from '../../../api/types';
import { count, dollars, duration, moment, zone } from '../../../base/format';
import { jsonText } from '../../../base/json';
import { useWords, type WordKey } from '../../../base/words';
import { changedPlaces } from '../../../model/overrides';
import { SourceTag, Status, Tag } from '../../../widgets/tags';
import { RunText, Said, Unknown } from '../../../widgets/text';
import type { PanelProps } from '../Inspector';
import { Makeup } from './ContextTab';
import { ChangedWords } from './DiffTab';
import { useMessages } from './MessagesTab';

/** What is known of a step beside what was said. */
export function Overview({ run, detail }: PanelProps) {
  const { t } = useWords();
  const { overview } = detail;
  return (
    <section className="panel">
      <dl className="kv">
        <Facts detail={detail} />
      </dl>
      {overview.problem && <p className="note">{overview.problem}</p>}
      {detail.partial && (
        <p className="note">
          <Tag look="made">{t('step.partial')}</Tag> {t('step.partial.say', { why: detail.partial })}
        </p>
      )}
      {overview.error && (
        <Section title={t('step.error')}>
          <pre className="box in">
            <RunText>{overview.error}</RunText>
          </pre>
        </Section>
      )}
      {overview.nearest && (
        <Section title={t('step.nearest')}>
          <p className="t2">
            <Said>{overview.nearest}</Said>
          </p>
        </Section>
      )}
      {detail.kind === 'llm' && <Makeup run={run} step={detail.idx} />}
      {overview.overrides.length > 0 && (
        <Section title={t('step.override')}>
          {detail.prompt_changed ? (
            <ChangedWords run={run} step={detail.idx} />
          ) : (
            <Changes changes={run.changes.length ? run.changes : overview.overrides} />
          )}
        </Section>
      )}
      {detail.kind === 'llm' && <Fresh run={run} step={detail.idx} />}
    </section>
  );
}

/** Messages of this input that the model step before was not asked, in one line each. */
function Fresh({ run, step }: { readonly run: PanelProps['run']; readonly step: number }) {
  const { t } = useWords();
  const found = useMessages(run, step, true);
  const fresh = found.data?.items.filter(message => message.new) ?? [];
  if (fresh.length === 0) return null;
  return (
    <Section title={t('step.fresh', { n: fresh.length })}>
      <ul className="fresh">
        {fresh.slice(0, FRESH).map(message => (
          <li key={message.index}>
            <span className="t2">{message.role}</span>
            <span className="ell mono">
              {message.parts.map((part, at) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: parts of one message have no other name than their place
                <span key={at}>
                  {part.type === 'tool_call' && (
                    <b>
                      <RunText>{`${part.name ?? ''} `}</RunText>
                    </b>
                  )}
                  <RunText>{part.text.slice(0, 200)}</RunText>{' '}
                </span>
              ))}
            </span>
            {message.source && <SourceTag source={message.source} />}
          </li>
        ))}
      </ul>
      {fresh.length > FRESH && <p className="note">{t('run.moreRuns', { n: FRESH, total: fresh.length })}</p>}
    </Section>
  );
}

const FRESH = 12;

function Section({ title, children }: { readonly title: string; readonly children: ReactNode }) {
  return (
    <div className="sec">
      <h3>{title}</h3>
      {children}
    </div>
  );
}

function Facts({ detail }: { readonly detail: StepDetail }) {
  const { t, language } = useWords();
  const { overview } = detail;
  const model = detail.kind === 'llm';
  return (
    <>
      <Fact word="step.source">
        <SourceTag source={detail.source} />
        {detail.status !== 'ok' && (
          <span className="beside">
            <Status status={detail.status} />
          </span>
        )}
      </Fact>
      {!model && (
        <Fact word="step.name">
          <RunText>{detail.name}</RunText>
        </Fact>
      )}
      {overview.asked_for && (
        <Fact word="step.asked">
          <RunText>{overview.asked_for}</RunText>
        </Fact>
      )}
      {model && (
        <Fact word="step.answered">
          {overview.answered_by ? <RunText>{overview.answered_by}</RunText> : <Unknown />}
        </Fact>
      )}
      {overview.given_by && (
        <Fact word="step.answeredBy">
          <RunText>{overview.given_by}</RunText>
        </Fact>
      )}
      {overview.prompt && (
        <Fact word="step.prompt">
          <RunText>{overview.prompt}</RunText>
        </Fact>
      )}
      {overview.provider && <Fact word="step.provider">{overview.provider}</Fact>}
      {Object.entries(overview.parameters)
        .filter(([name]) => name !== 'model')
        .map(([name, value]) => (
          <Named key={name} name={name}>
            <code className="ell">
              <RunText>{jsonText(value)}</RunText>
            </code>
          </Named>
        ))}
      {model && (
        <>
          <Fact word="step.tokens">
            {t('card.inOut', {
              i: count(detail.input_tokens, language) ?? t('state.unknown'),
              o: count(detail.output_tokens, language) ?? t('state.unknown'),
            })}
          </Fact>
          <Fact word="step.cost">{dollars(detail.cost) ?? <Unknown />}</Fact>
        </>
      )}
      {detail.effect && <Fact word="step.effect">{t(`effect.${detail.effect}`)}</Fact>}
      <Fact word="step.time">{duration(detail.seconds, language) ?? <Unknown />}</Fact>
      <Fact word="step.started">
        <span title={detail.started_at}>{moment(detail.started_at, language)}</span>{' '}
        <span className="dim">
          {zone(language, new Date(detail.started_at))}
          {overview.time_flag && ` · ${overview.time_flag}`}
        </span>
      </Fact>
      {overview.removed.length > 0 && (
        <Fact word="step.removed">
          {overview.removed.map(place => (
            <code key={place} className="ell line">
              <RunText>{place}</RunText>
            </code>
          ))}
        </Fact>
      )}
      {overview.stop_reason && <Fact word="step.stop">{overview.stop_reason}</Fact>}
      {overview.tries.length > 1 && <Fact word="step.tries">{overview.tries.length}</Fact>}
      {overview.request_digest && (
        <Fact word="step.request">
          <span className="mono">{overview.request_digest.slice(0, 12)}</span>{' '}
          <span className="dim">{t('step.canonical')}</span>
        </Fact>
      )}
      {detail.call_id && (
        <Fact word="step.callId">
          <span className="mono">{detail.call_id}</span>
        </Fact>
      )}
    </>
  );
}

function Fact({ word, children }: { readonly word: WordKey; readonly children: ReactNode }) {
  const { t } = useWords();
  return <Named name={t(word)}>{children}</Named>;
}

function Named({ name, children }: { readonly name: string; readonly children: ReactNode }) {
  return (
    <>
      <dt className="ell" title={name}>
        {name}
      </dt>
      <dd>{children}</dd>
    </>
  );
}

/** What a fork changed, place by place, with the values that it gave. */
function Changes({ changes }: { readonly changes: readonly Readonly<Record<string, unknown>>[] }) {
  const { t } = useWords();
  return (
    <div className="box dl">
      {changes.map((change, at) => {
        const place = changedPlaces([change])[0];
        const value = change['value'];
        return (
          // biome-ignore lint/suspicious/noArrayIndexKey: changes of one fork are in a fixed order
          <div key={at} className="n">
            <span>+</span>
            <span>
              <b>{typeof place === 'string' ? t(place) : place?.place}</b>{' '}
              {value !== undefined && <RunText>{typeof value === 'string' ? value : jsonText(value)}</RunText>}
            </span>
          </div>
        );
      })}
    </div>
  );
}
