import { describe, expect, it } from 'vitest';
import type { ComparedRow } from '../api/types';
import { meaningOf, missesOf } from './meaning';

const step = (kind: string, more: object = {}) => ({
  idx: 3,
  kind,
  name: 'x',
  source: 'live',
  error_class: null,
  ...more,
});
const row = (status: string, left: unknown, right: unknown, notes: readonly string[] = []) =>
  ({ row: 7, status, left, right, notes }) as ComparedRow;

describe('what a difference means', () => {
  const llm = step('llm');
  const tool = step('tool');
  const miss = step('tool', { source: 'miss', error_class: 'CassetteMiss' });

  it.each([
    ['bothModel', row('input_differs', llm, llm, ['output differs'])],
    ['inputModel', row('input_differs', llm, llm)],
    ['outputModel', row('output_differs', llm, llm)],
    ['inputTool', row('input_differs', tool, tool, ['output differs'])],
    ['outputTool', row('output_differs', tool, tool)],
    ['onlyA', row('only_left', tool, null)],
    ['onlyB', row('only_right', null, tool)],
    ['missB', row('error_one_side', tool, miss)],
    ['missA', row('error_one_side', miss, tool)],
    ['errorB', row('error_one_side', tool, step('tool', { error_class: 'ValueError' }))],
    ['errorA', row('error_one_side', step('tool', { error_class: 'ValueError' }), tool)],
  ])('%s', (word, found) => expect(meaningOf(found)).toBe(`compare.means.${word}`));

  it('finds the misses of a side', () => {
    const rows = [row('same', llm, llm), row('error_one_side', tool, miss)];
    expect(missesOf(rows, 'right')).toEqual([{ name: 'x', idx: 3, row: 7 }]);
    expect(missesOf(rows, 'left')).toEqual([]);
  });
});
