import { describe, expect, it } from 'vitest';
import type { Job } from '../api/types';
import { outcomeOf, quoted } from './jobs';

const FORK = {
  kind: 'fork',
  status: 'done',
  parent: 'shop-1',
  run_ids: ['shop-1-fork-a'],
  agent: null,
  progress: { runs: 1, of: 1, steps: 3, model_calls: 2, cost: null },
} as unknown as Job;

describe('what came of a job', () => {
  it('is a comparison of one fork, a summary of several', () => {
    expect(outcomeOf(FORK)).toEqual({ see: 'compare', a: 'shop-1', b: 'shop-1-fork-a' });
    const three = { ...FORK, run_ids: ['a', 'b', 'c'] };
    expect(outcomeOf(three)).toEqual({ see: 'summary', runs: ['shop-1', 'a', 'b', 'c'] });
  });

  it('is nothing before a run has ended', () => {
    expect(outcomeOf({ ...FORK, status: 'running', progress: { ...FORK.progress, runs: 0 } })).toBeNull();
    expect(outcomeOf({ ...FORK, status: 'queued' })).toBeNull();
    expect(outcomeOf({ ...FORK, kind: 'resume' })).toBeNull();
  });

  it('is kept where it was stopped half way', () => {
    expect(outcomeOf({ ...FORK, status: 'cancelled' })).not.toBeNull();
  });

  it('is a report only of a replay that was done', () => {
    expect(outcomeOf({ ...FORK, kind: 'replay', run_ids: [] })).toEqual({ see: 'report' });
    expect(outcomeOf({ ...FORK, kind: 'replay', run_ids: [], status: 'failed' })).toBeNull();
  });
});

describe('a command', () => {
  it('is not extended by text of a run', () => {
    expect(quoted('my_app.agents:desk')).toBe('my_app.agents:desk');
    expect(quoted("x; rm -rf '~'")).toBe(`'x; rm -rf '"'"'~'"'"''`);
    expect(quoted('a\nb')).toBe("'a\nb'");
  });
});
