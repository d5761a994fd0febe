import type { Run } from '../api/types';

/** Whether a line of descent goes on above and below a row of the list. */
export interface Line {
  readonly above: boolean;
  readonly below: boolean;
}

type Kin = Pick<Run, 'parent_run_id' | 'children'>;

/** By family a run stands above its forks; newest first it stands somewhere below them. */
export function lineOf(run: Kin, next: Kin | undefined, byFamily: boolean): Line {
  const fork = run.parent_run_id !== null;
  if (byFamily) return { above: fork, below: next !== undefined && next.parent_run_id !== null };
  return { above: fork || run.children > 0, below: fork };
}
