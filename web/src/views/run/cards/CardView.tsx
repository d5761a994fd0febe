import { createContext, useContext } from 'react';
import type { AgentCard, Card, GroupCard, KeptCard, RunDetail, Said, StepCard, StepHeader } from '../../../api/types';
import { useWords } from '../../../base/words';
import type { Tab } from '../../../model/addresses';
import { shows } from '../../../model/cards';
import { Icon } from '../../../widgets/Icon';
import { Kind, SourceTag, Tag } from '../../../widgets/tags';
import { RunText } from '../../../widgets/text';
import { Inside } from './Inside';
import { Model } from './Model';
import { CutText, Meta } from './parts';

interface CardContextValue {
  readonly run: RunDetail;
  readonly step: number;
  /** The header of a step, if it was fetched. */
  readonly header: (step: number) => StepHeader | undefined;
  readonly unfolded: ReadonlySet<number>;
  readonly total: number;
  readonly onStep: (step: number) => void;
  readonly onTab: (tab: Tab) => void;
  readonly toggle: (step: number) => void;
  readonly openKept: () => void;
}

export const CardContext = createContext<CardContextValue | null>(null);

export function useCard(): CardContextValue {
  const context = useContext(CardContext);
  if (!context) throw new Error('a card stands outside of a transcript');
  return context;
}

/** One card of the transcript. */
export function CardView({ card }: { readonly card: Card }) {
  switch (card.card) {
    case 'question':
      return <Question messages={card.messages} problem={card.problem} />;
    case 'model':
      return <Model card={card} />;
    case 'agent':
      return <Agent card={card} />;
    case 'step':
    case 'limit':
      return <Other card={card} />;
    case 'group':
      return <Group card={card} />;
    case 'kept':
      return <Kept card={card} />;
  }
}

/** What was asked first. Instructions are folded: they are read in the inspector. */
function Question({ messages, problem }: { readonly messages: readonly Said[]; readonly problem: string | null }) {
  return (
    <div className="card user">
      {messages.map((message, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: messages of one request have no other name than their place
        <Asked key={at} message={message} />
      ))}
      {problem && <p className="note">{problem}</p>}
    </div>
  );
}

/** What a person or the program said. */
export function Asked({ message }: { readonly message: Said }) {
  const { t } = useWords();
  if (message.role === 'system' || message.role === 'developer') {
    return (
      <details className="say system">
        <summary className="lbl">{message.role === 'system' ? t('card.system') : message.role}</summary>
        <CutText cut={message} />
      </details>
    );
  }
  return (
    <div className="say">
      <span className="lbl role">{message.role === 'user' ? t('card.user') : message.role}</span>
      <CutText cut={message} />
    </div>
  );
}

function Agent({ card }: { readonly card: AgentCard }) {
  const { t } = useWords();
  const { step, onStep, unfolded } = useCard();
  return (
    <article className={`card ${card.step === step ? 'sel' : ''}`}>
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: keys move through steps everywhere on the page */}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the same can be done from the list of steps */}
      <div className="ch" onClick={() => onStep(card.step)}>
        <span className="no">{card.step}</span>
        <Kind kind="agent" />
        <span className="nm nw">
          <RunText>{card.name}</RunText>
        </span>
        <Meta step={card.step} />
        <span className="grow" />
        <SourceTag source={card.source} />
      </div>
      {card.text.text && (
        <div className="say">
          <CutText cut={card.text} />
        </div>
      )}
      {card.error && <ErrorText cut={card.error} />}
      {card.problem && <p className="note in">{card.problem}</p>}
      {card.inside > 0 && <Unfold step={card.step} n={card.inside} />}
      {unfolded.has(card.step) && <Inside step={card.step} label={t('card.inside', { n: card.inside })} />}
    </article>
  );
}

/** Opens and folds what lies inside a step. */
export function Unfold({ step, n }: { readonly step: number; readonly n: number }) {
  const { t } = useWords();
  const { unfolded, toggle } = useCard();
  const open = unfolded.has(step);
  return (
    <button type="button" className="btn s q unfold" aria-expanded={open} onClick={() => toggle(step)}>
      <Icon sign={open ? 'down' : 'right'} />
      {t('card.inside', { n })}. <span className="accent">{t(open ? 'card.fold' : 'card.open')}</span>
    </button>
  );
}

export function ErrorText({ cut }: { readonly cut: { readonly text: string; readonly missing: number } }) {
  return (
    <div className="failed">
      <Icon sign="error" />
      <CutText cut={cut} />
    </div>
  );
}

function Other({ card }: { readonly card: StepCard }) {
  const { t } = useWords();
  const { step, onStep, unfolded } = useCard();
  return (
    <article className={`card ${card.step === step ? 'sel' : ''}`}>
      <button type="button" className="call single" onClick={() => onStep(card.step)}>
        <span className="no">{card.step}</span>
        <Kind kind={card.kind} />
        <span className="line">
          <span className="sig ell">
            <b>
              <RunText>{card.name}</RunText>
            </b>{' '}
            <RunText>{card.input.text}</RunText>
          </span>
          {card.output.text && (
            <span className="res">
              <span className="ell">
                <RunText>{card.output.text}</RunText>
              </span>
            </span>
          )}
        </span>
        <SourceTag source={card.source} />
      </button>
      {card.card === 'limit' && <p className="note in">{t('card.limit')}</p>}
      {card.error && <ErrorText cut={card.error} />}
      {card.problem && <p className="note in">{card.problem}</p>}
      {card.inside > 0 && <Unfold step={card.step} n={card.inside} />}
      {unfolded.has(card.step) && <Inside step={card.step} label={t('card.inside', { n: card.inside })} />}
    </article>
  );
}

/** Many equal calls in one row; misses and errors inside keep their signs. */
function Group({ card }: { readonly card: GroupCard }) {
  const { t } = useWords();
  const { step, onStep } = useCard();
  const at = card.first <= step && step <= card.last ? step : card.first;
  return (
    <article className={`card ${shows(card, step) ? 'sel' : ''}`}>
      <button type="button" className="call single" onClick={() => onStep(at)}>
        <span className="no">{card.first}</span>
        <Kind kind={card.kind} />
        <span className="sig ell">
          <b>
            <RunText>{t('card.group', { name: card.name, n: card.count })}</RunText>
          </b>{' '}
          <span className="dim">
            {card.first}–{card.last}
          </span>
        </span>
        <Counts misses={card.misses} errors={card.errors} />
      </button>
    </article>
  );
}

export function Counts({ misses, errors }: { readonly misses: number; readonly errors: number }) {
  const { t } = useWords();
  return (
    <span className="row">
      {misses > 0 && (
        <Tag look="miss" sign="miss">
          {t('source.misses', { n: misses })}
        </Tag>
      )}
      {errors > 0 && (
        <Tag look="error" sign="error">
          {t('source.errors', { n: errors })}
        </Tag>
      )}
    </span>
  );
}

/** The kept prefix in one hatched row. */
function Kept({ card }: { readonly card: KeptCard }) {
  const { t } = useWords();
  const { openKept } = useCard();
  return (
    <button type="button" className="card hatch keptrow" onClick={openKept}>
      <Tag look="kept" sign="kept">
        {t('card.keptRow', { n: card.count })}
      </Tag>
      <span className="keptcounts">
        {t('run.total.calls')} {card.model_calls}
      </span>
      <Counts misses={card.misses} errors={card.errors} />
    </button>
  );
}
