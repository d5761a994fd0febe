import type { WordKey } from '../base/words';

type Override = Readonly<Record<string, unknown>>;

const PLACES: readonly (readonly [place: RegExp, word: WordKey])[] = [
  [/^(messages\[0\]\.content|system|instructions|system_prompt|systemInstruction)\b/, 'override.system_prompt'],
  [/^(messages|input|contents)\b/, 'override.messages'],
  [/^model$/, 'override.model'],
  [/^temperature$/, 'override.temperature'],
  [/^tool_results?\b/, 'override.tool_result'],
  [/^tools\b/, 'override.tools'],
];

/** What a fork changed, for people: the word of a known place, else the place itself; each once, in order. */
export function changedPlaces(overrides: readonly Override[]): readonly (WordKey | { readonly place: string })[] {
  const places = [...new Set(overrides.map(placeOf))];
  const known = places.map(place => PLACES.find(([form]) => form.test(place))?.[1] ?? { place });
  return known.filter((found, at) => typeof found !== 'string' || known.indexOf(found) === at);
}

function placeOf(override: Override): string {
  const named = override['path'] ?? override['kind'] ?? override['name'];
  return typeof named === 'string' ? named : 'request';
}
