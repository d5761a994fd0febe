import { describe, expect, it } from 'vitest';
import type { Family } from '../api/types';
import { arms } from './arms';
import { descent } from './family';

const node = (id: string, started_at: string) => ({ id, started_at }) as Family['nodes'][number];
const edge = (parent: string, child: string, arm: string | null = null) => ({
  parent,
  child,
  step: 3,
  arm,
  overrides: [],
});

describe('a family', () => {
  const family: Family = {
    root: 'a',
    nodes: [node('a', '1'), node('control', '2'), node('late', '4'), node('early', '3'), node('below', '5')],
    edges: [edge('a', 'control', 'control'), edge('a', 'late'), edge('a', 'early'), edge('early', 'below')],
    capped: false,
  };

  it('is told from the first run down, controls last', () => {
    expect(descent(family).map(row => [row.run.id, row.depth])).toEqual([
      ['a', 0],
      ['early', 1],
      ['below', 2],
      ['late', 1],
      ['control', 1],
    ]);
  });

  it('lets lines pass by those who have later siblings above them', () => {
    expect(descent(family).map(row => row.through)).toEqual([[], [0], [0], [0], []]);
  });

  it('survives a circle and runs that are gone', () => {
    const broken = { ...family, edges: [edge('a', 'early'), edge('early', 'a'), edge('a', 'gone')] };
    expect(descent(broken).map(row => row.run.id)).toEqual(['a', 'early']);
  });

  it('stands in arms', () => {
    const run = (id: string, parent_run_id: string | null, arm: string | null) => ({ id, parent_run_id, arm });
    const found = arms([
      run('1', 'a', 'candidate'),
      run('2', null, null),
      run('3', 'a', 'control'),
      run('4', 'a', null),
    ]);
    expect(found.map(([arm, members]) => [arm, members.map(one => one.id)])).toEqual([
      ['observed', ['2']],
      ['control', ['3']],
      ['candidate', ['1', '4']],
    ]);
  });
});
