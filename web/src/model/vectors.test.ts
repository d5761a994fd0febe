// @vitest-environment node
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Path } from '../api/types';
import { jsonFault, jsonText, parseJson } from '../base/json';
import { drawingOf } from './pathtree';
import { messagesIn } from './request';

/** Facts that the engine is tested with too. */
const read = (name: string) =>
  readFileSync(join(import.meta.dirname, '../../../tests/vectors', `${name}.json`), 'utf8');

interface Canonical {
  readonly values: readonly { why: string; text: string; canonical: string; sha256: string }[];
  readonly faults: readonly { text: string; position: number }[];
}
interface Vector {
  readonly name: string;
  readonly request: unknown;
  readonly messages: readonly (readonly [role: string, path: string, parts: unknown])[];
}
const CANONICAL = JSON.parse(read('canonical')) as Canonical;
const MESSAGES = parseJson(read('messages')) as readonly Vector[];

/** The canonical form of what the page has read, as plainly as it can be written. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value === 'object' && value !== null) {
    const names = Object.keys(value).sort();
    const members = value as Readonly<Record<string, unknown>>;
    return `{${names.map(name => `${JSON.stringify(name)}:${canonical(members[name])}`).join(',')}}`;
  }
  if (typeof value === 'number' && Number.isInteger(value)) return BigInt(value).toString();
  return jsonText(value);
}

describe('what the page reads of stored JSON', () => {
  it.each(CANONICAL.values)('has the digest that the engine gives it: $why', ({ text, canonical: said, sha256 }) => {
    const form = canonical(parseJson(text));
    expect(form).toBe(said);
    expect(createHash('sha256').update(form).digest('hex')).toBe(sha256);
  });

  it.each(CANONICAL.values)('is the same after the page has written it: $why', ({ text, canonical: said }) => {
    expect(canonical(parseJson(jsonText(parseJson(text))))).toBe(said);
  });

  it.each(CANONICAL.faults)('is no JSON where the engine finds none: $text', ({ text }) => {
    expect(jsonFault(text)).not.toBeNull();
  });
});

describe('the messages of a request', () => {
  it.each(MESSAGES)('are found where the engine finds them: $name', ({ request, messages }) => {
    const found = messagesIn(jsonText(request));
    const listed = messages.flatMap(([, path]) => /^(?:messages|input|contents)\/(\d+)$/.exec(path)?.[1] ?? []);
    expect(found.map((_, at) => String(at))).toEqual(expect.arrayContaining([...new Set(listed)]));
    expect(found.length).toBe(Math.max(0, ...listed.map(at => Number(at) + 1)));
  });
});

interface Road {
  readonly why: string;
  readonly runs: Readonly<Record<string, readonly unknown[]>>;
  readonly paths: readonly Path[];
}
const ROADS = JSON.parse(read('paths')) as readonly Road[];

/** The runs of each stretch with its depth, as the engine told them. */
function told(paths: readonly Path[], depth = 0): (readonly [depth: number, runs: number, ends: number])[] {
  return paths.flatMap(path => [
    [depth, path.runs.length, path.ends.length] as const,
    ...told(path.children, depth + 1),
  ]);
}

describe('the tree of paths that the page draws', () => {
  it.each(ROADS)('is the one that the engine found: $why', ({ runs, paths }) => {
    const drawing = drawingOf(paths);
    expect(drawing.stretches.map(one => [one.depth, one.runs, one.ends])).toEqual(told(paths));
    const travelled = Object.keys(runs).filter(run => paths.some(path => path.runs.includes(run)));
    expect(drawing.strands.map(one => one.run).toSorted()).toEqual(travelled.toSorted());
    for (const strand of drawing.strands) {
      expect(strand.at.map(one => one.depth)).toEqual(strand.at.map((_, at) => at));
      expect(drawing.stretches.filter(one => one.ending.includes(strand.run)).map(one => one.depth)).toEqual([
        strand.at.length - 1,
      ]);
    }
    for (let depth = 0; depth < drawing.depth; depth++) {
      const places = drawing.strands.flatMap(strand => strand.at.filter(one => one.depth === depth).map(one => one.y));
      expect(new Set(places).size, 'no two strands lie on each other').toBe(places.length);
    }
  });
});
