import type { PlaceChange } from './diff';
import { membersOf } from './request';

/** One side of a divergence: the recorded call, or the one that was made. */
export interface Side {
  readonly kind: string;
  readonly name: string;
  readonly type?: string;
  readonly digest?: string;
}

export interface Divergence {
  readonly kind: string;
  readonly sequence: number | null;
  readonly lane: string | null;
  readonly n: number | null;
  readonly step: number | null;
  readonly expected: Side | null;
  readonly actual: Side | null;
  readonly changes: readonly PlaceChange[];
  readonly more_changes: boolean;
  readonly caller: { readonly file: string; readonly line: number } | null;
  readonly candidates: readonly (Side & { readonly sequence: number; readonly rejected: string })[];
  readonly last_agreeing: { readonly sequence: number; readonly type: string; readonly name: string } | null;
  readonly hints: readonly string[];
  readonly suggestion: string | null;
  readonly message: string | null;
}

export const VERDICTS = ['pass', 'reached', 'diverged', 'damaged', 'could_not_run'] as const;
type Verdict = (typeof VERDICTS)[number];
export const LEVELS = ['flow', 'state', 'content'] as const;
export type Level = (typeof LEVELS)[number];

/** What a replay found. */
export interface ReplayReport {
  readonly run_id: string;
  readonly verdict: Verdict;
  readonly exit_code: number;
  readonly reason: string | null;
  readonly level: Level;
  readonly levels: Readonly<Record<Level, boolean | null>>;
  readonly events: number;
  readonly consumed: number;
  readonly calls: number;
  readonly isolation: string;
  readonly not_covered: readonly string[];
  readonly order_proven: boolean;
  readonly unproven: readonly string[];
  readonly divergence: Divergence | null;
  readonly expected_differences: readonly Divergence[];
  readonly notes: readonly string[];
  /** Marks of deliberate changes: whether the recording has them. Reports of earlier versions do not say. */
  readonly patched?: Readonly<Record<string, boolean>>;
  readonly version: string;
  readonly message: string | null;
}

/** A stored report, if it is one that this page understands. */
export function reportIn(value: unknown): ReplayReport | null {
  const found = value as ReplayReport | null;
  return typeof found === 'object' && VERDICTS.includes(found?.verdict as Verdict) ? found : null;
}

/** Whether the recording itself is at fault: such a run is damaged and never "diverged". */
export function isDamaged(report: ReplayReport): boolean {
  return report.verdict === 'damaged';
}

export interface Mark {
  readonly first: number;
  readonly last: number;
  readonly fate: 'agreed' | 'bad' | 'left';
  readonly tall: boolean;
}

/**
 * The tape as at most `width` marks, each of one event or of equally many. The place of the divergence is a mark of its
 * own fate, whatever else its mark holds. `tall` are events of these sequences, where a mark is one event.
 */
export function marks(report: ReplayReport, tall: ReadonlySet<number>, width = 240): readonly Mark[] {
  const each = Math.max(1, Math.ceil(report.events / width));
  const bad = report.divergence?.sequence ?? null;
  const agreed = bad === null ? report.consumed : bad - 1;
  return Array.from({ length: Math.ceil(report.events / each) }, (_, at) => {
    const [first, last] = [at * each + 1, Math.min((at + 1) * each, report.events)];
    const here = bad !== null && first <= bad && bad <= last;
    return {
      first,
      last,
      fate: here ? 'bad' : last <= agreed ? 'agreed' : 'left',
      tall: each === 1 && tall.has(first),
    };
  });
}

/** What a snapshot says of the place where a run was recorded, in short; what it does not know is left out. */
export interface Recorded {
  readonly python: string | null;
  readonly commit: string | null;
  readonly changed: boolean;
  readonly packages: number | null;
}

export function recordedWith(snapshot: unknown): Recorded | null {
  const found = membersOf(snapshot);
  if (!found) return null;
  const git = membersOf(found['git']);
  const commit = git?.['commit'];
  const count = membersOf(found['distributions'])?.['count'];
  return {
    python: typeof found['python'] === 'string' ? found['python'] : null,
    commit: typeof commit === 'string' ? commit.slice(0, 10) : null,
    changed: git?.['dirty'] === true,
    packages: typeof count === 'number' ? count : null,
  };
}

/** How many events agreed, are the divergence, and are left over; together all of them. */
export function fates(report: ReplayReport): { readonly agreed: number; readonly bad: number; readonly left: number } {
  const at = report.divergence?.sequence ?? null;
  const bad = at !== null && at <= report.events ? 1 : 0;
  const agreed = Math.min(report.consumed, report.events - bad);
  return { agreed, bad, left: report.events - agreed - bad };
}
