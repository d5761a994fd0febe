import type { ComparedHead } from '../api/types';
import { jsonText } from '../base/json';

type Snapshots = ComparedHead['snapshot'];
type Change = Snapshots['changes'][number];

/** How what two runs depended on differs; `unknown` where a run recorded nothing of it, or where that was deleted. */
export type Depended =
  | { readonly state: 'same' | 'unknown' }
  | { readonly state: 'changed'; readonly packages: readonly string[]; readonly others: readonly string[] };

/** Names of what differs: packages as `openai 3.56.0 → 3.57.0`, all else by its path without the word `given`. */
export function depended({ changes, lines }: Snapshots): Depended {
  if (changes.length === 0) return { state: lines.length > 0 ? 'unknown' : 'same' };
  const packages = changes.filter(isPackage);
  return {
    state: 'changed',
    packages: packages.map(one => `${called(one.what)} ${sideOf(one.left) ?? '–'} → ${sideOf(one.right) ?? '–'}`),
    others: changes.filter(one => !isPackage(one)).map(one => called(one.what)),
  };
}

/** What a change is of, as people know it. */
export function called(what: string): string {
  return what.replace(/^(packages|given)\./, '');
}

/** A recorded value as text; null where the run had none. */
export function sideOf(value: unknown): string | null {
  if (value === null || value === undefined) return null;
  return typeof value === 'string' ? value : jsonText(value);
}

function isPackage(one: Change): boolean {
  return one.what.startsWith('packages.');
}
