import { jsonFault, parseJson } from '../base/json';
import type { WordKey } from '../base/words';

/** What became of an effect, as a person may have found out. */
export const OUTCOMES = ['finished', 'failed', 'not_done'] as const;

/** What a person has typed about an effect so far. */
export interface Word {
  readonly outcome: (typeof OUTCOMES)[number] | null;
  /** Of `finished`: JSON; empty means that the tool returned nothing. */
  readonly result: string;
  /** Of `failed`: what the tool would have raised. */
  readonly error: string;
  readonly externalId: string;
  readonly why: string;
  readonly by: string;
}

export const EMPTY_WORD: Word = { outcome: null, result: '', error: '', externalId: '', why: '', by: '' };

/** What is still missing or wrong; null where it can be said. */
export function settleFault(word: Word): WordKey | null {
  if (word.outcome === null) return 'effects.bad.outcome';
  if (word.outcome === 'finished' && word.result.trim() && jsonFault(word.result)) return 'effects.bad.result';
  if (!word.why.trim()) return 'effects.bad.why';
  return word.by.trim() ? null : 'effects.bad.by';
}

/** What is sent; only what belongs to the outcome. */
export function settleBody(call_id: string, word: Word): Readonly<Record<string, unknown>> {
  const { outcome } = word;
  const external_id = word.externalId.trim();
  return {
    call_id,
    outcome,
    why: word.why.trim(),
    by: word.by.trim(),
    ...(outcome === 'finished' && word.result.trim() ? { result: parseJson(word.result) } : {}),
    ...(outcome === 'failed' && word.error.trim() ? { result: word.error.trim() } : {}),
    ...(outcome !== 'not_done' && external_id ? { external_id } : {}),
  };
}
