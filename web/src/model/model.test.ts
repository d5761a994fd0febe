import { describe, expect, it } from 'vitest';
import { runSearch, runsSearch, summarySearch } from './addresses';
import { barOf, marks, timeLine } from './waterfall';

const span = (from: number, to: number | null) => ({
  started_at: new Date(from).toISOString(),
  ended_at: to === null ? null : new Date(to).toISOString(),
});

describe('the time line', () => {
  it('shares out the time of a run', () => {
    const line = timeLine(span(2000, 5000), new Date(1000).toISOString(), 0);
    expect(barOf(span(2000, 4000), line)).toEqual({ left: 0.25, width: 0.5 });
  });

  it('lets an open step reach to now', () => {
    expect(barOf(span(2000, null), timeLine(span(1000, null), undefined, 3000))).toEqual({ left: 0.5, width: 0.5 });
  });

  it('keeps clocks that went backwards inside', () => {
    expect(barOf(span(500, 400), timeLine(span(1000, 2000), undefined, 0))).toEqual({ left: 0, width: 0 });
  });

  it('has round marks', () => {
    expect(marks(7620)).toEqual([0, 2, 4, 6]);
    expect(marks(56)).toEqual([0, 0.02, 0.04]);
  });
});

describe('addresses', () => {
  it('drop what they do not know', () => {
    expect(runSearch({ step: '14', tab: 'raw', other: 'x', side: 'tree', fork: '-1' })).toEqual({
      step: 14,
      tab: 'raw',
      side: 'tree',
    });
    expect(runSearch({ step: 'NaN', tab: 'nothing' })).toEqual({});
  });

  it('keep lists', () => {
    expect(runsSearch({ sel: 'a', agent: ['x', 'y'], q: '' })).toEqual({ sel: ['a'], agent: 'y' });
    expect(summarySearch({ run: ['a', 'b'] })).toEqual({ run: ['a', 'b'] });
  });
});
