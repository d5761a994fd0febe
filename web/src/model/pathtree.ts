import type { Path } from '../api/types';

/** A stretch of road as it is drawn. */
export interface Stretch {
  readonly depth: number;
  /** The middle of its strands. */
  readonly y: number;
  readonly label: string;
  readonly runs: number;
  readonly ends: number;
  readonly missed: boolean;
  readonly failed: boolean;
  readonly steps: number;
  /** The runs that end here. */
  readonly ending: readonly string[];
}

/** The road of one run: where its strand lies in each stretch. */
export interface Strand {
  readonly run: string;
  readonly at: readonly { readonly depth: number; readonly y: number }[];
}

export interface Drawing {
  readonly stretches: readonly Stretch[];
  readonly strands: readonly Strand[];
  readonly depth: number;
  readonly height: number;
  /** The width of a strand. */
  readonly width: number;
}

const ROOM = 34;
const MOST = 12;
const TOP = 28;

/** Lays out a tree of paths: every run is a strand, strands that go together lie together. */
export function drawingOf(paths: readonly Path[]): Drawing {
  const total = paths.reduce((sum, path) => sum + path.runs.length, 0);
  const width = total > MOST ? Math.max(1, Math.round((MOST * 5) / total)) : 4;
  const lane = width + (total > MOST ? 1 : 2);
  const ends = new Map<string, number>();
  const bottom = placeEnds(paths, lane, TOP, ends);
  const stretches: Stretch[] = [];
  const roads = new Map<string, { depth: number; y: number }[]>();
  const walk = (path: Path, depth: number) => {
    const runs = path.runs.toSorted((a, b) => (ends.get(a) ?? 0) - (ends.get(b) ?? 0));
    const middle = runs.reduce((sum, run) => sum + (ends.get(run) ?? 0), 0) / Math.max(1, runs.length);
    const from = middle - ((runs.length - 1) * lane) / 2;
    for (const [at, run] of runs.entries()) roads.set(run, [...(roads.get(run) ?? []), { depth, y: from + at * lane }]);
    stretches.push(stretchOf(path, depth, middle, from));
    for (const child of path.children) walk(child, depth + 1);
  };
  for (const path of paths) walk(path, 0);
  const strands = [...roads].map(([run, at]) => ({ run, at }));
  return { stretches, strands, width, depth: Math.max(0, ...stretches.map(one => one.depth)) + 1, height: bottom + 8 };
}

/** Gives every run the place where it ends, from top to bottom; returns the bottom. */
function placeEnds(paths: readonly Path[], lane: number, top: number, ends: Map<string, number>): number {
  let y = top;
  for (const path of paths) {
    y = placeEnds(path.children, lane, y, ends);
    if (path.ends.length === 0) continue;
    for (const run of path.ends) {
      ends.set(run, y);
      y += lane;
    }
    y += ROOM;
  }
  return y;
}

function stretchOf(path: Path, depth: number, y: number, top: number): Stretch {
  return {
    depth,
    y: Math.min(y, top),
    label: labelOf(path),
    runs: path.runs.length,
    ends: path.ends.length,
    missed: path.stretch.some(step => step.source === 'miss'),
    failed: path.stretch.some(step => step.error_class !== null && step.source !== 'miss'),
    steps: path.stretch.length,
    ending: path.ends,
  };
}

/** The tree with its first stretch parted where all forks were cut, so that what was kept stands by itself. */
export function cutApart(paths: readonly Path[], cut: number): readonly Path[] {
  const [first] = paths;
  if (!first || paths.length > 1) return paths;
  const kept = first.stretch.filter(step => step.idx < cut);
  if (kept.length === 0 || kept.length === first.stretch.length) return paths;
  const rest: Path = { ...first, stretch: first.stretch.slice(kept.length) };
  return [{ stretch: kept, runs: first.runs, ends: [], children: [rest] }];
}

const NAMES = 3;

/** What was called in a stretch, each name once with how often; empty where nothing was. */
function labelOf(path: Path): string {
  const called = new Map<string, number>();
  for (const step of path.stretch) {
    if (step.kind !== 'llm' && step.kind !== 'agent') called.set(step.name, (called.get(step.name) ?? 0) + 1);
  }
  const names = [...called].map(([name, n]) => (n > 1 ? `${name} ×${n}` : name));
  return names.length > NAMES ? `${names.slice(0, NAMES).join(', ')} …` : names.join(', ');
}

/** The line of a strand through its stretches: level within one, bent between two. */
export function lineOf(strand: Strand, column: number, bend: number, last: number): string {
  const parts = strand.at.map(({ depth, y }, at) => {
    const x = depth * column;
    const before = strand.at[at - 1];
    if (!before) return `M${x} ${y}`;
    const middle = x + bend / 2;
    return `L${x} ${before.y}C${middle} ${before.y} ${middle} ${y} ${x + bend} ${y}`;
  });
  const end = strand.at.at(-1);
  return `${parts.join('')}L${(end?.depth ?? 0) * column + last} ${end?.y ?? 0}`;
}
