import type { RunDetail, Verdict } from '../api/types';
import type { WordKey } from '../base/words';

/** How the evidence of a run stands, as far as anybody looked. */
export type Standing = 'newer' | 'checking' | 'not_checked' | 'damaged' | 'erased' | 'whole';

export function standing(
  run: Pick<RunDetail, 'newer' | 'badges'>,
  verdict: Verdict | null,
  checking: boolean,
): Standing {
  if (run.newer !== null) return 'newer';
  if (checking) return 'checking';
  if (verdict === null) return run.badges.chain === 'broken' ? 'damaged' : 'not_checked';
  if (!verdict.ok) return 'damaged';
  return verdict.erased ? 'erased' : 'whole';
}

/** A sentence by its word; times are for the page to write. */
export interface Sentence {
  readonly word: WordKey;
  readonly values?: Readonly<Record<string, string | number>>;
}

/** What a check has shown. */
export function proven(verdict: Verdict, moment: (iso: string) => string): readonly Sentence[] {
  const { linked, bodies_checked, anchored_at, anchor_sequence, key_id } = verdict;
  return [
    ...(linked > 0 ? [{ word: 'proof.linked', values: { n: linked } } as const] : []),
    ...(anchored_at !== null && anchor_sequence !== null
      ? [
          {
            word: 'proof.signed',
            values: { n: anchor_sequence, at: moment(anchored_at), key: (key_id ?? '').slice(0, 12) },
          } as const,
        ]
      : []),
    ...(bodies_checked > 0 ? [{ word: 'proof.bodies', values: { n: bodies_checked } } as const] : []),
    ...(verdict.ok && verdict.ended ? [{ word: 'proof.ended' } as const] : []),
  ];
}

/** What no check of this run has shown, each with what it leaves open. */
export function notProven(verdict: Verdict): readonly Sentence[] {
  const { events, anchor_sequence, anchor_problem } = verdict;
  const signed = anchor_sequence !== null;
  const found: readonly (Sentence | false)[] = [
    !verdict.ended && { word: 'proof.notEnded' },
    anchor_problem !== null && { word: 'proof.anchorProblem', values: { why: anchor_problem } },
    !signed && anchor_problem === null && { word: verdict.anchors ? 'proof.notSigned' : 'proof.noAnchors' },
    signed && anchor_sequence < events && { word: 'proof.behind', values: { n: anchor_sequence } },
    verdict.erased && { word: 'proof.erased' },
    !verdict.erased && verdict.bodies_missing > 0 && { word: 'proof.missing', values: { n: verdict.bodies_missing } },
    { word: 'proof.world' },
  ];
  return found.filter(one => one !== false);
}

/** Kinds of faults, as the engine names them. */
export const FAULTS = [
  'gap',
  'sequence',
  'run_id',
  'prev_hash',
  'hash',
  'cause',
  'unreadable',
  'end',
  'empty',
  'cut',
  'relinked',
  'reused',
  'lost',
  'body',
  'body_missing',
] as const;

/** The first bad record in words; a kind of fault that this page does not know is an unknown one. */
export function faultIn(fault: NonNullable<Verdict['fault']>): Sentence {
  const known = FAULTS.find(one => one === fault.reason);
  return { word: known ? `fault.${known}` : 'fault.unknown', values: { n: fault.sequence } };
}
