import { describe, expect, it } from 'vitest';
import { fates, isDamaged, marks, type ReplayReport, recordedWith, reportIn } from './report';

const REPORT = {
  run_id: 'shop-1',
  verdict: 'diverged',
  events: 47,
  consumed: 20,
  divergence: { kind: 'input_changed', sequence: 21 },
} as unknown as ReplayReport;

describe('what a run was recorded with', () => {
  it('is told as far as its snapshot knows', () => {
    const git = { commit: '0123456789abcdef', dirty: true };
    expect(recordedWith({ python: '3.11.7', git, distributions: { digest: 'ab', count: 2 } })).toEqual({
      python: '3.11.7',
      commit: '0123456789',
      changed: true,
      packages: 2,
    });
    expect(recordedWith({ git: null })).toEqual({ python: null, commit: null, changed: false, packages: null });
    expect(recordedWith(null)).toBeNull();
  });
});

describe('a report', () => {
  it('is taken only where it is one', () => {
    expect(reportIn(REPORT)).toBe(REPORT);
    expect([null, {}, [], 'pass', { verdict: 'fine' }].map(reportIn)).toEqual([null, null, null, null, null]);
  });

  it('counts every event once', () => {
    expect(fates(REPORT)).toEqual({ agreed: 20, bad: 1, left: 26 });
    expect(fates({ ...REPORT, consumed: 47, divergence: null })).toEqual({ agreed: 47, bad: 0, left: 0 });
  });

  it('knows a divergence behind the end of the tape', () => {
    const extra = { ...REPORT, consumed: 47, divergence: { ...REPORT.divergence, sequence: 48 } } as ReplayReport;
    expect(fates(extra)).toEqual({ agreed: 47, bad: 0, left: 0 });
    expect(marks(extra, new Set()).filter(mark => mark.fate !== 'agreed')).toEqual([]);
  });

  it('does not call damage a divergence', () => {
    expect(isDamaged({ ...REPORT, verdict: 'damaged' })).toBe(true);
    expect(isDamaged(REPORT)).toBe(false);
  });
});

describe('the tape', () => {
  it('shows one mark an event while there is room', () => {
    const drawn = marks(REPORT, new Set([3, 27]));
    expect(drawn).toHaveLength(47);
    expect(drawn.filter(mark => mark.tall).map(mark => mark.first)).toEqual([3, 27]);
    expect(drawn[20]).toEqual({ first: 21, last: 21, fate: 'bad', tall: false });
    expect(drawn.slice(0, 20).every(mark => mark.fate === 'agreed')).toBe(true);
    expect(drawn.slice(21).every(mark => mark.fate === 'left')).toBe(true);
  });

  it('never loses the divergence of a long tape', () => {
    const long = { ...REPORT, events: 100_000, divergence: { ...REPORT.divergence, sequence: 55_555 } } as ReplayReport;
    const drawn = marks(long, new Set([3]), 200);
    expect(drawn).toHaveLength(200);
    expect(drawn.at(-1)?.last).toBe(100_000);
    const bad = drawn.filter(mark => mark.fate === 'bad');
    expect(bad).toHaveLength(1);
    expect(bad[0]?.first).toBeLessThanOrEqual(55_555);
    expect(drawn.some(mark => mark.tall)).toBe(false);
  });

  it('has no mark where there is no event', () => expect(marks({ ...REPORT, events: 0 }, new Set())).toEqual([]));
});
