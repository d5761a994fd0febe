import type { Family, FamilyRun } from '../api/types';

type Edge = Family['edges'][number];

/** A run in a drawing of its family. */
export interface Relative {
  readonly run: FamilyRun;
  readonly depth: number;
  readonly edge: Edge | null;
  /** It has forks below. */
  readonly parent: boolean;
  /** Depths of lines that pass by it, down to later runs. */
  readonly through: readonly number[];
}

/** The runs of a family from the first one down, each followed by its forks: controls last, else in order of time. */
export function descent(family: Family): readonly Relative[] {
  const runs = new Map(family.nodes.map(run => [run.id, run]));
  const below = new Map<string, Edge[]>();
  for (const edge of family.edges) below.set(edge.parent, [...(below.get(edge.parent) ?? []), edge]);
  const rows: Relative[] = [];
  const seen = new Set<string>();
  const walk = (id: string, depth: number, edge: Edge | null, through: readonly number[]) => {
    const run = runs.get(id);
    if (!run || seen.has(id)) return;
    seen.add(id);
    const forks = (below.get(id) ?? []).filter(one => runs.has(one.child)).toSorted((a, b) => order(a, b, runs));
    rows.push({ run, depth, edge, parent: forks.length > 0, through });
    for (const [at, fork] of forks.entries()) {
      walk(fork.child, depth + 1, fork, at < forks.length - 1 ? [...through, depth] : through);
    }
  };
  walk(family.root, 0, null, []);
  return rows;
}

function order(a: Edge, b: Edge, runs: ReadonlyMap<string, FamilyRun>): number {
  const control = (edge: Edge) => (edge.arm === 'control' ? 1 : 0);
  const time = (edge: Edge) => runs.get(edge.child)?.started_at ?? '';
  return control(a) - control(b) || time(a).localeCompare(time(b)) || a.child.localeCompare(b.child);
}
