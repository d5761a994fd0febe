import { describe, expect, it } from 'vitest';
import type { Path } from '../api/types';
import { cutApart, drawingOf, lineOf } from './pathtree';

const step = (name: string, source = 'live', kind = 'tool') => ({
  idx: 0,
  kind,
  name,
  status: 'ok',
  source,
  error_class: null,
  effect: null,
  line: '',
});
const leaf = (names: string[], runs: string[], source = 'live'): Path => ({
  stretch: names.map(name => step(name, source)),
  runs,
  ends: runs,
  children: [],
});
const tree: Path = {
  stretch: [step('chat', 'recorded', 'llm'), step('get_weather'), step('get_weather')],
  runs: ['a', 'b', 'c'],
  ends: [],
  children: [leaf(['refund'], ['b', 'c']), leaf(['refund'], ['a'], 'miss')],
};

describe('the path tree', () => {
  const drawing = drawingOf([tree]);

  it('gives every run one strand that goes from its first stretch to its last', () => {
    expect(drawing.strands.map(strand => [strand.run, strand.at.length]).sort()).toEqual([
      ['a', 2],
      ['b', 2],
      ['c', 2],
    ]);
    expect(drawing.depth).toBe(2);
  });

  it('crosses no strands: where they go together they lie in the order in which they end', () => {
    const y = (run: string, at: number) => drawing.strands.find(strand => strand.run === run)?.at[at]?.y ?? Number.NaN;
    expect(y('b', 1)).toBeLessThan(y('c', 1));
    expect(y('c', 1)).toBeLessThan(y('a', 1));
    expect(y('b', 0)).toBeLessThan(y('c', 0));
    expect(y('c', 0)).toBeLessThan(y('a', 0));
  });

  it('says what was called, how often, and where a miss was', () => {
    expect(drawing.stretches.map(one => [one.label, one.runs, one.ends, one.missed])).toEqual([
      ['get_weather ×2', 3, 0, false],
      ['refund', 2, 2, false],
      ['refund', 1, 1, true],
    ]);
  });

  it('is parted where the forks were cut, if they share what was kept', () => {
    const at = (idx: number) => ({ ...step('look'), idx });
    const whole: Path = { ...tree, stretch: [at(0), at(1), at(2)] };
    const [kept] = cutApart([whole], 2);
    expect(kept?.stretch.map(one => one.idx)).toEqual([0, 1]);
    expect(kept?.ends).toEqual([]);
    expect(kept?.children.map(child => child.stretch.map(one => one.idx))).toEqual([[2]]);
    expect(kept?.children[0]?.children).toEqual(tree.children);
    expect(cutApart([whole], 3)).toEqual([whole]);
    expect(cutApart([whole, whole], 2)).toEqual([whole, whole]);
  });

  it('draws many runs thinner', () => {
    const runs = Array.from({ length: 40 }, (_, at) => `run-${at}`);
    expect(drawingOf([leaf(['x'], runs)]).width).toBeLessThan(drawing.width);
  });

  it('draws a line without gaps', () => {
    const strand = {
      run: 'a',
      at: [
        { depth: 0, y: 10 },
        { depth: 1, y: 30 },
      ],
    };
    expect(lineOf(strand, 200, 40, 180)).toBe('M0 10L200 10C220 10 220 30 240 30L380 30');
  });

  it('can be empty', () => expect(drawingOf([]).stretches).toEqual([]));
});
