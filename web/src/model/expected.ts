import type { Divergence } from './report';

/** An entry of the file behind `agentloupe replay --expect` (see `engine/expectations.py`). */
export interface Expected {
  readonly kind: string;
  readonly name?: string;
  readonly place?: string;
}

/** What cannot be meant: damage, leaks, and a program that does not come to its next call. */
const NEVER = ['leak', 'truncated', 'corrupt', 'version', 'not_rebuildable', 'not_as_expected', 'missing'];

/** The difference as one that is meant; null where it cannot be. */
export function expectedOf(divergence: Divergence | null): Expected | null {
  if (!divergence || NEVER.includes(divergence.kind)) return null;
  const name = (divergence.expected ?? divergence.actual)?.name;
  const [only] = divergence.changes;
  const narrow = divergence.changes.length === 1 && !divergence.more_changes && only?.path;
  return { kind: divergence.kind, ...(name ? { name } : {}), ...(narrow ? { place: narrow } : {}) };
}
