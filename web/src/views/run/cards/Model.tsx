import { Link } from '@tanstack/react-router';
import type { Call, ModelCard } from '../../../api/types';
import { useWords } from '../../../base/words';
import { whyIn } from '../../../base/words/said';
import { callsOf, shows } from '../../../model/cards';
import { Icon } from '../../../widgets/Icon';
import { Kind, SourceTag, Tag } from '../../../widgets/tags';
import { RunText, Said } from '../../../widgets/text';
import { Asked, Counts, ErrorText, Unfold, useCard } from './CardView';
import { Inside } from './Inside';
import { CutText, Meta } from './parts';

/** A model step: reasoning above the calls that it caused, each with its result. */
export function Model({ card }: { readonly card: ModelCard }) {
  const { t } = useWords();
  const { step, onStep, onTab, header, total } = useCard();
  const final = card.calls.length === 0 && card.at === total - 1 && card.status === 'ok';
  const model = header(card.step)?.model ?? card.name;
  return (
    <>
      {card.asked.map((message, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: messages have no other name than their place
        <div key={at} className="card user">
          <Asked message={message} />
        </div>
      ))}
      <article className={`card ${shows(card, step) ? 'sel' : ''}`} aria-label={t('step.title', { step: card.step })}>
        <div className="ch">
          <button type="button" className="chopen" onClick={() => onStep(card.step)}>
            <span className="no">{card.step}</span>
            <Kind kind="llm" />
            <span className="nm nw">{final ? t('card.final') : <RunText>{model}</RunText>}</span>
            <Meta step={card.step} parallel={card.parallel ? card.calls.length : 0} />
          </button>
          <SourceTag source={card.source} />
          <ForkButton step={card.step} />
        </div>
        <Flag
          card={card}
          onOpen={() => {
            onStep(card.step);
            onTab('diff');
          }}
        />
        {card.reasoning.text && (
          <div className="reason">
            <b>{t('card.reasoning')}</b>
            <CutText cut={card.reasoning} />
          </div>
        )}
        {card.text.text && (
          <div className="say">
            <CutText cut={card.text} />
          </div>
        )}
        {card.error && <ErrorText cut={card.error} />}
        {card.problem && <p className="note in">{card.problem}</p>}
        {card.calls.length > 0 && <Calls card={card} />}
      </article>
    </>
  );
}

/** The calls of a model step, each once: the first of them, and how many more there are, with their misses and errors. */
function Calls({ card }: { readonly card: ModelCard }) {
  const { t } = useWords();
  const { step, onStep, unfolded, toggle } = useCard();
  const { shown, hidden, folded, foldable, misses, errors } = callsOf(card, unfolded.has(card.step), step);
  const next = Math.max(...shown.map(call => call.step ?? card.step)) + 1;
  return (
    <div className={`calls ${card.parallel ? 'par2' : ''}`}>
      {shown.map((call, at) => (
        <CallRow key={call.call_id ?? call.step ?? at} call={call} />
      ))}
      {hidden > 0 && (
        <div className="row">
          <button
            type="button"
            className="btn s q unfold"
            aria-expanded={false}
            onClick={() => (folded ? toggle(card.step) : onStep(next))}
          >
            <Icon sign="right" />
            {t('card.moreCalls', { n: hidden })}
            {!folded && <span className="accent">{t('card.inSteps', { step: next })}</span>}
          </button>
          <Counts misses={misses} errors={errors} />
        </div>
      )}
      {foldable && unfolded.has(card.step) && (
        <button type="button" className="btn s q unfold" aria-expanded onClick={() => toggle(card.step)}>
          <Icon sign="down" />
          {t('card.fold')}
        </button>
      )}
    </div>
  );
}

/** Begins a fork here; where none can begin the reason stands beside it. */
function ForkButton({ step }: { readonly step: number }) {
  const { t, language } = useWords();
  const { run, header: at } = useCard();
  const header = at(step);
  if (!header) return null;
  if (!header.forkable) {
    return (
      <>
        <span className="note" id={`off-${step}`}>
          {t('step.forkOff', { reason: whyIn(language, header.fork_reason_code, header.fork_reason) })}
        </span>
        <button type="button" className="btn s" disabled aria-describedby={`off-${step}`}>
          <Icon sign="fork" />
          {t('card.fork')}
        </button>
      </>
    );
  }
  return (
    <Link to="/runs/$id/fork" params={{ id: run.id }} search={{ from: step }} className="btn s fork">
      <Icon sign="fork" />
      {t('card.fork')}
    </Link>
  );
}

/** Where the leading instructions or the tools differ from the model step before. */
function Flag({ card, onOpen }: { readonly card: ModelCard; readonly onOpen: () => void }) {
  const { t } = useWords();
  if (!card.prompt_flag && !card.tools_flag) return null;
  return (
    <button type="button" className="flag" onClick={onOpen}>
      <Icon sign="flag" />
      <b className="ell">
        {card.prompt_flag && t('card.promptChanged')} {card.tools_flag && t('card.toolsChanged')}
      </b>
      <span className="grow" />
      <span className="nw">{t('card.seeDiff')}</span>
    </button>
  );
}

/** Characters of a call and its result that share a line. */
const LINE = 64;

/** A call and what came of it. */
function CallRow({ call }: { readonly call: Call }) {
  const { t } = useWords();
  const { step, onStep, header, unfolded } = useCard();
  const missed = call.source === 'miss';
  const narrow =
    !missed && !call.error && call.name.length + call.arguments.text.length + (call.result?.text.length ?? 0) < LINE;
  const signature = (
    <span className="sig ell">
      <b>
        <RunText>{call.name}</RunText>
      </b>{' '}
      <RunText>{call.arguments.text}</RunText>
    </span>
  );
  return (
    <div className={`callbox ${call.step === step ? 'open' : ''}`}>
      <button
        type="button"
        className={`call ${missed ? 'missed' : ''} ${call.error && !missed ? 'erred' : ''}`}
        disabled={call.step === null}
        onClick={() => call.step !== null && onStep(call.step)}
      >
        <span className="no">{call.step ?? ''}</span>
        <Kind kind={(call.step !== null && header(call.step)?.kind) || 'tool'} />
        {narrow ? (
          <span className="line">
            {signature}
            <Result call={call} />
          </span>
        ) : (
          signature
        )}
        <span className="nw">
          {call.reused && <Tag>{t('source.reused', { n: 2 })}</Tag>} {call.source && <SourceTag source={call.source} />}
        </span>
        {!narrow && <Result call={call} />}
        {missed && (
          <span className="why">
            {call.effect === 'write' && <>{t('card.write')} </>}
            {call.nearest && <Said>{call.nearest}</Said>}
          </span>
        )}
      </button>
      {call.inside > 0 && call.step !== null && <Unfold step={call.step} n={call.inside} />}
      {call.step !== null && unfolded.has(call.step) && <Inside step={call.step} label={call.name} />}
    </div>
  );
}

function Result({ call }: { readonly call: Call }) {
  const { t } = useWords();
  const text = call.error?.text ?? call.result?.text;
  return (
    <span className={`res ${call.error && call.source !== 'miss' ? 'bad' : ''}`}>
      <span className="ell">
        {call.source === 'miss' ? (
          t('card.missed', { name: call.name })
        ) : text === undefined ? (
          <span className="dim">{t(call.status === 'open' ? 'card.pending' : 'card.noResult')}</span>
        ) : (
          <RunText>{text}</RunText>
        )}
      </span>
    </span>
  );
}
