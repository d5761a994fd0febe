import { describe, expect, it } from 'vitest';
import type { Card, ModelCard } from '../api/types';
import { searchText } from '../base/address';
import { forkSearch, jobsSearch, runSearch, runsSearch, summarySearch } from './addresses';
import { callsOf, cardFor, cutAbove, span as spanOf } from './cards';
import { colourOf, slices } from './context';
import { shortened, wordsApart } from './diff';
import { columnAt, heights } from './minimap';
import {
  axis,
  barOf,
  following,
  moved,
  outside,
  partOf,
  rangeOf,
  rangeText,
  readRange,
  timeLine,
  WHOLE,
  zoomed,
  zoomOf,
} from './waterfall';

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

  it('has round marks, in the unit that suits them', () => {
    const shown = (total: number) => {
      const { unit, marks } = axis(total);
      return `${marks.map(mark => mark.value).join(' ')} ${unit}`;
    };
    expect(shown(56)).toBe('0 20 40 ms');
    expect(shown(7620)).toBe('0 2 4 6 s');
    expect(shown(600_000)).toBe('0 5 10 m');
    expect(shown(36_000_000)).toBe('0 5 10 h');
    expect(axis(8000).marks.map(mark => mark.at)).toEqual([0, 0.25, 0.5, 0.75, 1]);
  });

  it('has round marks in a part of it, counted from the beginning of the run', () => {
    const { unit, marks } = axis(1000, 61_500);
    expect([unit, ...marks.map(mark => mark.value)]).toEqual(['s', 61.5, 62, 62.5]);
    expect(marks.map(mark => mark.at)).toEqual([0, 0.5, 1]);
  });

  it('is zoomed around a place that stays, and never beyond its ends', () => {
    expect(zoomed(WHOLE, 0.5, 0.5)).toEqual({ left: 0.25, right: 0.75 });
    expect(zoomed(WHOLE, 0.25, 0)).toEqual({ left: 0, right: 0.25 });
    expect(zoomed({ left: 0, right: 0.25 }, 2, 1)).toEqual({ left: 0, right: 0.5 });
    expect(zoomed({ left: 0.25, right: 0.75 }, 8, 0.5)).toEqual(WHOLE);
    for (let place = 0; place <= 1; place += 0.01) expect(zoomed(zoomed(WHOLE, 0.5, place), 2, place)).toBe(WHOLE);
    expect(moved(WHOLE, 0.5)).toBe(WHOLE);
    expect(zoomed(WHOLE, 0, 0.5).right).toBeGreaterThan(0.5);
    expect(moved({ left: 0.5, right: 0.75 }, 5)).toEqual({ left: 0.75, right: 1 });
    expect(moved({ left: 0.5, right: 0.75 }, -1)).toEqual({ left: 0.25, right: 0.5 });
  });

  it('has a part in seconds of its run, which stays the same while the run goes on', () => {
    const run = span(2000, null);
    const [then, later] = [timeLine(run, undefined, 6000), timeLine(run, undefined, 10_000)];
    const range = rangeOf({ left: 0.25, right: 0.5 }, then, run);
    expect(range).toEqual({ from: 1, to: 2 });
    expect(zoomOf(range, then, run)).toEqual({ left: 0.25, right: 0.5 });
    expect(zoomOf(range, later, run)).toEqual({ left: 0.125, right: 0.25 });
    const fork = timeLine(run, new Date(1000).toISOString(), 6000);
    expect(rangeOf({ left: 0, right: 0.4 }, fork, run)).toEqual({ from: -1, to: 1 });
    expect(rangeOf(WHOLE, then, run)).toBeUndefined();
    expect(zoomOf(undefined, then, run)).toBe(WHOLE);
    expect(zoomOf({ from: 7, to: 9 }, then, run)).toBe(WHOLE);
    expect(zoomOf({ from: 3, to: 9 }, then, run)).toEqual({ left: 0.75, right: 1 });
  });

  it('tells a part by no more digits than can be seen', () => {
    expect(rangeText(undefined)).toBeUndefined();
    expect(rangeText({ from: 1, to: 2.5 })).toBe('1..2.5');
    expect(rangeText({ from: -12.3456789, to: 987.654321 })).toBe('-12.3..987.7');
    expect(rangeText({ from: 100, to: 20_100.4 })).toBe('100..20100');
    expect(rangeText({ from: 61.123456789, to: 61.123567891 })).toBe('61.1234568..61.1235679');
    expect(readRange('-12.3..987.7')).toEqual({ from: -12.3, to: 987.7 });
    for (const bad of ['2..1', '1..1', '1', '..', '1..2..3', '1e9..2e9', 'NaN..1', '1...5', '']) {
      expect(readRange(bad)).toBeUndefined();
    }
  });

  it('follows the open step out of the part that is shown', () => {
    const line = timeLine(span(0, 1000), undefined, 0);
    const part = { left: 0, right: 0.1 };
    expect(partOf(line, { left: 0.5, right: 0.75 })).toEqual({ from: 500, total: 250, offset: 500 });
    expect(following(part, span(50, 60), line)).toBe(part);
    expect(following(part, span(500, 600), line)).toEqual({ left: 0.5, right: 0.6 });
    expect(outside(span(500, 600), partOf(line, part))).toBe(true);
    expect(outside(span(50, null), partOf(line, { left: 0.5, right: 1 }))).toBe(false);
  });
});

describe('addresses', () => {
  it('drop what they do not know', () => {
    expect(runSearch({ step: '14', tab: 'raw', other: 'x', side: 'tree', fork: '-1' })).toEqual({
      step: 14,
      tab: 'raw',
      side: 'tree',
    });
    expect(runSearch({ step: 'NaN', tab: 'nothing', range: '2..1' })).toEqual({});
    expect(runSearch({ range: '1.500000001..2' })).toEqual({ range: '1.5..2' });
    expect(forkSearch({ from: 'start' })).toEqual({ from: 'start' });
    expect(forkSearch({ from: '3' })).toEqual(forkSearch({ from: 3 }));
  });

  it('put undefined over what the address has, since the router adds what is left out', () => {
    const raw = { status: 'bogus', first: '-1' };
    expect({ ...raw, ...jobsSearch(raw) }).toEqual({ status: undefined, first: undefined });
    expect(searchText({ ...raw, ...jobsSearch(raw) })).toBe('');
    const runs = { status: 'bogus', coverage: 'most', misses: 'yes', since: 'ever' };
    expect(searchText({ ...runs, ...runsSearch(runs) })).toBe('');
    expect(runsSearch({ status: 'ok', coverage: 'full', forks: '1', since: '2026-04-01' })).toEqual({
      status: 'ok',
      coverage: 'full',
      forks: '1',
      since: '2026-04-01',
    });
  });

  it('keep lists', () => {
    expect(runsSearch({ sel: 'a', agent: ['x', 'y'], q: '' })).toEqual({ sel: ['a'], agent: 'y' });
    expect(summarySearch({ run: ['a', 'b'] })).toEqual({ run: ['a', 'b'] });
  });
});

describe('words apart', () => {
  it('are those that only one side has', () => {
    expect(wordsApart('refund the order.', 'refund only the boxes.')).toEqual([
      ['=', 'refund '],
      ['+', 'only '],
      ['=', 'the '],
      ['-', 'order'],
      ['+', 'boxes'],
      ['=', '.'],
    ]);
  });

  it('give both texts back, in any script', () => {
    const [left, right] = ['两地今天气温相差 12 度。', '两地今天气温相差 11.7 °C。'];
    const words = wordsApart(left, right) ?? [];
    const side = (op: string) => words.filter(([one]) => one === '=' || one === op).map(([, text]) => text);
    expect(side('-').join('')).toBe(left);
    expect(side('+').join('')).toBe(right);
  });

  it('are not looked for where there is nothing to find, or too much', () => {
    expect(wordsApart('a', 'a')).toBeNull();
    expect(wordsApart('a '.repeat(5000), 'b '.repeat(5000))).toBeNull();
  });
});

describe('a long text', () => {
  it('keeps what changed and the ends of what did not', () => {
    const long = 'x'.repeat(1000);
    const short = shortened(
      [
        ['=', long],
        ['+', 'new'],
        ['=', long],
      ],
      10,
    );
    expect(short[0]?.[1]).toBe(` … ${'x'.repeat(10)}`);
    expect(short[1]).toEqual(['+', 'new']);
    expect(short[2]?.[1]).toBe(`${'x'.repeat(10)} … `);
  });
});

describe('cards', () => {
  const model = { card: 'model', at: 1, step: 3, kept: false, calls: [{ step: 4 }, { step: null }] } as unknown as Card;
  const group = { card: 'group', at: 2, step: 5, first: 5, last: 12, kept: false } as unknown as Card;
  const question = { card: 'question', at: 0, step: 3, kept: true } as unknown as Card;

  it('are found by the steps that they show', () => {
    expect(cardFor([question, model, group], 4)).toBe(1);
    expect(cardFor([question, model, group], 3)).toBe(1);
    expect(cardFor([question, model, group], 9)).toBe(2);
    expect(cardFor([question, undefined, group], 40)).toBe(2);
    expect(cardFor([question], 0)).toBe(-1);
  });

  it('say where the prefix ends', () => {
    expect(cutAbove(model, question)).toBe(true);
    expect(cutAbove(group, model)).toBe(false);
    expect(cutAbove(model, undefined)).toBe(false);
    expect([spanOf(model), spanOf(group)]).toEqual([
      [3, 4],
      [5, 12],
    ]);
  });
});

describe('the calls of a model', () => {
  const calls = Array.from({ length: 8 }, (_, at) => ({ step: at + 1, source: at === 0 || at === 7 ? 'miss' : null }));
  const card = { calls, calls_missing: 4, misses: 3, errors: 0 } as unknown as ModelCard;

  it('are folded behind the first five, and say what is among the rest', () => {
    const folded = callsOf(card, false, 0);
    expect([folded.shown.length, folded.hidden, folded.misses, folded.folded]).toEqual([5, 7, 2, true]);
    const open = callsOf(card, true, 0);
    expect([open.shown.length, open.hidden, open.misses, open.folded]).toEqual([8, 4, 1, false]);
  });

  it('are shown when one of the folded is the step that is read', () => {
    expect(callsOf(card, false, 7).shown).toHaveLength(8);
    expect(callsOf(card, false, 3).shown).toHaveLength(5);
  });
});

describe('a context', () => {
  it('joins parts by role and news, new ones last', () => {
    const part = (role: string, fresh: boolean, tokens: number) => ({ role, new: fresh, tokens, share: tokens / 10 });
    const found = slices([
      part('tool', true, 1),
      part('tool', false, 2),
      part('system', false, 3),
      part('tool', true, 4),
    ]);
    expect(found.map(slice => [slice.role, slice.new, slice.tokens])).toEqual([
      ['system', false, 3],
      ['tool', false, 2],
      ['tool', true, 5],
    ]);
    expect(found.map(colourOf)).toEqual(['var(--c1)', 'var(--c3)', 'var(--c5)']);
  });
});

describe('the minimap', () => {
  it('lets small steps be seen, and finds the column below the pointer', () => {
    expect(heights([{ tokens: 0 }, { tokens: 100 }, { tokens: 25 }], 40)).toEqual([2, 40, 20]);
    expect(heights([], 40)).toEqual([]);
    expect([columnAt(-5, 100, 10), columnAt(55, 100, 10), columnAt(500, 100, 10)]).toEqual([0, 5, 9]);
  });
});
