import { useVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useRef, useState } from 'react';
import type { Card, RunDetail } from '../../api/types';
import { useKeys } from '../../base/keys';
import { useWords } from '../../base/words';
import type { Tab } from '../../model/addresses';
import { cardFor, cutAbove, span } from '../../model/cards';
import { CutLine } from '../../widgets/controls';
import { Failure, Loading } from '../../widgets/states';
import { CardContext, CardView } from './cards/CardView';
import { cardOf, useCards, useSteps } from './queries';

interface TranscriptProps {
  readonly run: RunDetail;
  readonly step: number;
  /** The step that the address names, if it names one: only then does the transcript go there by itself. */
  readonly asked: number | undefined;
  readonly onStep: (step: number) => void;
  readonly onTab: (tab: Tab) => void;
  readonly onView: (steps: readonly [number, number]) => void;
}

const HEIGHT = 104;
/** A kept prefix up to this long is shown step by step at once. */
const SHORT = 24;

/** What was asked, thought, called and answered, in order. Rows are virtual; what is read never moves. */
export function Transcript({ run, step, asked, onStep, onTab, onView }: TranscriptProps) {
  const { t } = useWords();
  const pane = useRef<HTMLDivElement>(null);
  const [openKept, setOpenKept] = useState(run.kept_steps <= SHORT);
  const [unfolded, setUnfolded] = useState<ReadonlySet<number>>(new Set());
  const cards = useCards(run.id, openKept);
  const steps = useSteps(run.id);
  const total = cards.total ?? 0;
  const rows = useVirtualizer({
    count: total,
    getScrollElement: () => pane.current,
    estimateSize: () => HEIGHT,
    overscan: 6,
    initialRect: { width: 700, height: 700 },
  });
  const items = rows.getVirtualItems();
  const [first, last] = [items[0]?.index ?? 0, items.at(-1)?.index ?? 0];
  useLook(cards, first, last, steps, onView);
  useGoTo({ run, asked, openKept, cards, total, first, rows });
  const toggle = (inside: number) =>
    setUnfolded(before =>
      before.has(inside) ? new Set([...before].filter(one => one !== inside)) : new Set([...before, inside]),
    );
  useKeys({ z: () => toggle(step) });
  const context = {
    run,
    step,
    header: steps.at,
    unfolded,
    total,
    onStep,
    onTab,
    toggle,
    openKept: () => setOpenKept(true),
  };
  return (
    <section className="pane tx" aria-label={t('run.transcript')} ref={pane} id="transcript" tabIndex={-1}>
      {cards.error && <Failure error={cards.error} again={cards.again} />}
      {cards.total === undefined && !cards.error && <Loading what={t('run.transcript')} rows={9} />}
      {cards.total === 0 && <p className="state t2">{t(run.erased ? 'run.stepsGone' : 'run.noSteps')}</p>}
      <CardContext value={context}>
        <div className="rows" style={{ height: rows.getTotalSize() }}>
          {items.map(item => {
            const card = cards.at(item.index);
            return (
              <div
                key={item.key}
                data-index={item.index}
                ref={rows.measureElement}
                className="txrow"
                style={{ transform: `translateY(${item.start}px)` }}
              >
                {card ? (
                  <Lane card={card} before={cards.at(item.index - 1)} run={run} />
                ) : (
                  <div className="card skelcard" />
                )}
              </div>
            );
          })}
        </div>
      </CardContext>
      <NewSteps run={run} pane={pane.current} total={total} />
    </section>
  );
}

/** A card beside the band that says whether it was kept or is new, and the cut line above the first new one. */
function Lane({
  card,
  before,
  run,
}: {
  readonly card: Card;
  readonly before: Card | undefined;
  readonly run: RunDetail;
}) {
  const { t } = useWords();
  const fork = run.forked_from_step !== null;
  const look = fork ? (card.kept ? 'pre' : 'post') : 'plain';
  return (
    <>
      {fork && cutAbove(card, before) && (
        <CutLine step={run.forked_from_step ?? 0}>{t('card.kept', { n: run.kept_steps })}</CutLine>
      )}
      <div className={`lane ${look}`}>
        <div className="g" />
        <CardView card={card} />
      </div>
    </>
  );
}

type Cards = ReturnType<typeof useCards>;
type Steps = ReturnType<typeof useSteps>;

/** Fetch what is in view, and say which steps that are. */
function useLook(
  cards: Cards,
  first: number,
  last: number,
  steps: Steps,
  onView: (steps: readonly [number, number]) => void,
) {
  const [top, bottom] = [cards.at(first), cards.at(last) ?? cards.at(last - 1)];
  const [from, to] = [top ? span(top)[0] : undefined, bottom ? span(bottom)[1] : undefined];
  const [lookCards, lookSteps] = [cards.look, steps.look];
  useEffect(() => lookCards(first, last), [lookCards, first, last]);
  useEffect(() => {
    if (from === undefined || to === undefined) return;
    lookSteps(from, to);
    onView([from, to]);
  }, [lookSteps, onView, from, to]);
}

interface GoTo {
  readonly run: RunDetail;
  readonly asked: number | undefined;
  readonly openKept: boolean;
  readonly cards: Cards;
  readonly total: number;
  readonly first: number;
  readonly rows: { scrollToIndex: (index: number, options: { align: 'auto' | 'center' }) => void };
}

/**
 * Bring the step that the address names into view, once for each time that it names another. A card that is not fetched
 * yet has no height to rely on: it is gone to twice, the second time when it is there.
 */
function useGoTo({ run, asked, openKept, cards, total, rows }: GoTo) {
  const [goal, setGoal] = useState<{ readonly step: number; readonly index: number }>();
  const known = useRef(cards.at);
  useEffect(() => {
    known.current = cards.at;
  });
  const done = goal !== undefined && goal.step === asked;
  useEffect(() => {
    if (asked === undefined || total === 0 || done) return;
    const loaded = Array.from({ length: total }, (_, index) => known.current(index));
    const index = cardFor(loaded, asked);
    if (index >= 0 && (loaded[index + 1] !== undefined || index === total - 1)) {
      rows.scrollToIndex(index, { align: 'auto' });
      return setGoal({ step: asked, index });
    }
    let gone = false;
    void cardOf(run.id, asked, openKept).then(found => {
      if (!gone && found !== null) setGoal({ step: asked, index: found });
    });
    return () => {
      gone = true;
    };
  }, [asked, total, rows, run.id, openKept, done]);
  const there = done && cards.at(goal.index) !== undefined;
  useEffect(() => {
    if (goal) rows.scrollToIndex(goal.index, { align: there ? 'auto' : 'center' });
  }, [rows, goal, there]);
}

/** How many cards came below while something above is read; a click goes down. */
function NewSteps({
  run,
  pane,
  total,
}: {
  readonly run: RunDetail;
  readonly pane: HTMLElement | null;
  readonly total: number;
}) {
  const { t } = useWords();
  const [seen, setSeen] = useState(total);
  const atEnd = !pane || pane.scrollHeight - pane.scrollTop - pane.clientHeight < HEIGHT;
  useEffect(() => {
    if (atEnd || seen === 0) setSeen(total);
  }, [atEnd, seen, total]);
  const fresh = total - seen;
  if (run.status !== 'running' || fresh <= 0 || atEnd) return null;
  return (
    <button type="button" className="btn s newsteps" onClick={() => pane.scrollTo({ top: pane.scrollHeight })}>
      {t('run.newSteps', { n: fresh })}
    </button>
  );
}
