// @vitest-environment node
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { expectedOf } from './expected';
import type { Divergence } from './report';

const found = (more: Partial<Divergence>) => ({ changes: [], more_changes: false, ...more }) as unknown as Divergence;
const side = { kind: 'llm', name: 'chat m' };

it('names the kind, the call and the one place', () => {
  const change = { path: 'messages[0].content', change: 'changed' };
  expect(expectedOf(found({ kind: 'input_changed', expected: side, changes: [change] }))).toEqual({
    kind: 'input_changed',
    name: 'chat m',
    place: 'messages[0].content',
  });
  expect(expectedOf(found({ kind: 'input_changed', expected: side, changes: [change, change] }))).toEqual({
    kind: 'input_changed',
    name: 'chat m',
  });
  expect(expectedOf(found({ kind: 'extra', expected: null, actual: side }))).toEqual({ kind: 'extra', name: 'chat m' });
});

it('cannot be meant where the engine takes none', () => {
  const engine = readFileSync(join(import.meta.dirname, '../../../src/agentloupe/engine/expectations.py'), 'utf8');
  const never = [...(/^_NEVER.*$/m.exec(engine)?.[0] ?? '').matchAll(/"([a-z_]+)"/g)].map(([, kind]) => kind ?? '');
  expect(never.length).toBeGreaterThan(5);
  expect(never.map(kind => expectedOf(found({ kind })))).toEqual(never.map(() => null));
  expect(expectedOf(null)).toBeNull();
});
