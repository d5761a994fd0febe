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
