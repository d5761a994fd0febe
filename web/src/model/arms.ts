export type Arm = 'observed' | 'control' | 'candidate';

interface Member {
  readonly parent_run_id: string | null;
  readonly arm: string | null;
  readonly id: string;
}

/** The arm that a run belongs to: a run that others were forked from is observed, a fork without an arm is a candidate. */
export function armOf(run: Member): Arm {
  if (run.arm === 'control' || run.arm === 'candidate') return run.arm;
  return run.parent_run_id === null ? 'observed' : 'candidate';
}

const ORDER: readonly Arm[] = ['observed', 'control', 'candidate'];

/** Runs by their arms, empty arms left out. */
export function arms<T extends Member>(runs: readonly T[]): readonly (readonly [Arm, readonly T[]])[] {
  return ORDER.map(arm => [arm, runs.filter(run => armOf(run) === arm)] as const).filter(
    ([, members]) => members.length,
  );
}
