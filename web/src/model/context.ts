/** A part of a context as it is drawn: who said it, and whether it is new in this input. */
export interface Slice {
  readonly role: string;
  readonly new: boolean;
  readonly tokens: number;
  readonly share: number;
}

const ORDER = ['system', 'user', 'tool schemas', 'assistant', 'tool'];

/** Parts joined by role and news: what was there before comes first, neutral; what is new comes last, in the accent. */
export function slices(parts: readonly Slice[]): readonly Slice[] {
  const joined = new Map<string, Slice>();
  for (const { role, new: fresh, tokens, share } of parts) {
    const name = `${role} ${fresh}`;
    const before = joined.get(name);
    joined.set(name, { role, new: fresh, tokens: tokens + (before?.tokens ?? 0), share: share + (before?.share ?? 0) });
  }
  const rank = (slice: Slice) => (slice.new ? 100 : 0) + (ORDER.indexOf(slice.role) + 1 || ORDER.length + 1);
  return [...joined.values()].sort((a, b) => rank(a) - rank(b));
}

const OLD: Readonly<Record<string, string>> = { system: '--c1', user: '--c2' };

/** The colour of a part: neutral for what was there, accent for what is new. */
export function colourOf(slice: Slice): string {
  if (slice.new) return `var(${slice.role === 'tool' || slice.role === 'user' ? '--c5' : '--c4'})`;
  return `var(${OLD[slice.role] ?? '--c3'})`;
}
