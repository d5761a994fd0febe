// What stands behind `?` in the page's own addresses: plain names and values, repeated where there are several.

export function parseSearch(text: string): Record<string, string | string[]> {
  const found: Record<string, string | string[]> = {};
  for (const [name, value] of new URLSearchParams(text)) {
    const before = Object.hasOwn(found, name) ? found[name] : undefined;
    found[name] = before === undefined ? value : [...[before].flat(), value];
  }
  return found;
}

export function searchText(search: Record<string, unknown>): string {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(search)) {
    for (const one of [value].flat()) if (one != null && one !== '') asked.append(name, String(one));
  }
  return asked.size ? `?${asked}` : '';
}

/** The one value of a name; the last of several. */
export function one(value: unknown): string | undefined {
  const last = Array.isArray(value) ? value.at(-1) : value;
  return typeof last === 'string' && last !== '' ? last : undefined;
}

/** All values of a name. */
export function many(value: unknown): readonly string[] {
  return [value].flat().filter((item): item is string => typeof item === 'string' && item !== '');
}

/** A whole number that is not negative, as text or read already. */
export function whole(value: unknown): number | undefined {
  const text = one(typeof value === 'number' ? String(value) : value);
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}
