import type { Call, Card, ModelCard } from '../api/types';

/** Whether a card shows this step itself, not only something around it. */
export function shows(card: Card, step: number): boolean {
  if ('first' in card && card.first <= step && step <= card.last) return true;
  if (card.card === 'question') return false;
  return card.step === step || (card.card === 'model' && card.calls.some(call => call.step === step));
}

/** Calls of a model that are shown before the rest is asked for. */
const FOLD = 5;

/** The calls of a model card that are shown, and what of the rest must be said while it is folded. */
export function callsOf(card: ModelCard, open: boolean, step: number) {
  const { calls, calls_missing } = card;
  const whole = open || calls.length <= FOLD || calls.some((call, at) => at >= FOLD && call.step === step);
  const shown = whole ? calls : calls.slice(0, FOLD);
  return {
    shown,
    hidden: calls.length - shown.length + calls_missing,
    /** Whether more of them can be shown here. */
    folded: shown.length < calls.length,
    foldable: whole && calls.length > FOLD,
    misses: card.misses - shown.filter(call => call.source === 'miss').length,
    errors: card.errors - shown.filter(call => call.error && call.source !== 'miss').length,
  };
}

/** The place of the card that shows a step, else of the last one that begins before it; -1 if none does. */
export function cardFor(cards: readonly (Card | undefined)[], step: number): number {
  const exact = cards.findIndex(card => card !== undefined && shows(card, step));
  if (exact >= 0) return exact;
  return cards.findLastIndex(card => card !== undefined && card.card !== 'question' && card.step <= step);
}

/** The first and the last step that a card speaks of. */
export function span(card: Card): readonly [number, number] {
  if ('first' in card) return [card.first, card.last];
  const calls = card.card === 'model' ? card.calls.map((call: Call) => call.step ?? card.step) : [];
  return [card.step, Math.max(card.step, ...calls)];
}

/** Whether the cut line stands above this card: the first one that was not kept. */
export function cutAbove(card: Card, before: Card | undefined): boolean {
  return !card.kept && before !== undefined && before.kept;
}
