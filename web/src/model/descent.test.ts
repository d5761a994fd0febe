import { expect, test } from 'vitest';
import { lineOf } from './descent';

const root = { parent_run_id: null, children: 2 };
const fork = { parent_run_id: 'a', children: 0 };
const alone = { parent_run_id: null, children: 0 };

test('by family a line goes from a run down to the last of its forks', () => {
  expect(lineOf(root, fork, true)).toEqual({ above: false, below: true });
  expect(lineOf(fork, fork, true)).toEqual({ above: true, below: true });
  expect(lineOf(fork, alone, true)).toEqual({ above: true, below: false });
  expect(lineOf(fork, undefined, true)).toEqual({ above: true, below: false });
});

test('newest first the forks stand above', () => {
  expect(lineOf(root, alone, false)).toEqual({ above: true, below: false });
  expect(lineOf(fork, root, false)).toEqual({ above: true, below: true });
  expect(lineOf(alone, fork, false)).toEqual({ above: false, below: false });
});
