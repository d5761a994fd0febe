/** What the server says of two model steps, in the form in which it is drawn. */
export type Op = 'same' | 'changed' | 'added' | 'removed';
export type Word = readonly [op: '=' | '-' | '+', text: string];

export interface PlaceChange {
  readonly path: string;
  readonly change: string;
  readonly expected?: unknown;
  readonly actual?: unknown;
  readonly more?: true;
}

export interface MessageChange {
  readonly op: Op;
  readonly left: number | null;
  readonly right: number | null;
  readonly role: string | null;
  readonly words?: readonly Word[];
  readonly changes?: readonly PlaceChange[];
}

export interface ToolChange {
  readonly op: Op;
  readonly name: string;
  readonly changes?: readonly PlaceChange[];
}

/** How many messages there are of each fate. */
export function counted(changes: readonly { readonly op: Op }[]): Readonly<Record<Op, number>> {
  const found: Record<Op, number> = { same: 0, changed: 0, added: 0, removed: 0 };
  for (const { op } of changes) found[op] += 1;
  return found;
}

/** Long stretches of equal words cut to their ends, so that what changed is seen. */
export function shortened(words: readonly Word[], around = 160): readonly Word[] {
  return words.map(([op, text], at) => {
    if (op !== '=' || text.length <= 2 * around + 20) return [op, text] as const;
    const [head, tail] = [at === 0 ? '' : text.slice(0, around), at === words.length - 1 ? '' : text.slice(-around)];
    return [op, `${head} … ${tail}`] as const;
  });
}

const MANY = 3000;

/** Two texts word by word; null where they are too long for it, or the same. */
export function wordsApart(left: string, right: string): readonly Word[] | null {
  const [ours, theirs] = [left, right].map(text => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? []);
  if (!ours || !theirs || left === right || ours.length * theirs.length > MANY * MANY) return null;
  return joined(walk(ours, theirs, lengths(ours, theirs)));
}

/** Lengths of the longest common part from each pair of places on. */
function lengths(ours: readonly string[], theirs: readonly string[]): readonly Uint16Array[] {
  const table = Array.from({ length: ours.length + 1 }, () => new Uint16Array(theirs.length + 1));
  for (let i = ours.length - 1; i >= 0; i--) {
    const [row, below] = [table[i], table[i + 1]];
    if (!row || !below) continue;
    for (let j = theirs.length - 1; j >= 0; j--) {
      row[j] = ours[i] === theirs[j] ? (below[j + 1] ?? 0) + 1 : Math.max(below[j] ?? 0, row[j + 1] ?? 0);
    }
  }
  return table;
}

function walk(ours: readonly string[], theirs: readonly string[], table: readonly Uint16Array[]): readonly Word[] {
  const found: Word[] = [];
  let [i, j] = [0, 0];
  while (i < ours.length || j < theirs.length) {
    const [mine, other] = [ours[i], theirs[j]];
    if (mine !== undefined && mine === other) {
      found.push(['=', mine]);
      i += 1;
      j += 1;
    } else if (mine !== undefined && (other === undefined || (table[i + 1]?.[j] ?? 0) >= (table[i]?.[j + 1] ?? 0))) {
      found.push(['-', mine]);
      i += 1;
    } else if (other !== undefined) {
      found.push(['+', other]);
      j += 1;
    }
  }
  return found;
}

/** Neighbours of one kind as one piece; between two changes removed words stand before added ones. */
function joined(words: readonly Word[]): readonly Word[] {
  const found: [Word[0], string][] = [];
  for (const [op, text] of words) {
    const last = found.at(-1);
    const before = found.at(-2);
    if (last?.[0] === op) last[1] += text;
    else if (op === '-' && last?.[0] === '+' && before?.[0] === '-') before[1] += text;
    else found.push([op, text]);
  }
  return found;
}
