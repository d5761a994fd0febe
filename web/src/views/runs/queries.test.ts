import { describe, expect, it } from 'vitest';
import { sinceTime } from './queries';

describe('since', () => {
  const now = Date.parse('2026-03-02T12:34:56Z');

  it('counts from now, to the minute', () => {
    expect(sinceTime('hour', now)).toBe('2026-03-02T11:34:00.000Z');
    expect(sinceTime('week', now)).toBe('2026-02-23T12:34:00.000Z');
  });

  it('may be a time itself', () => {
    expect(sinceTime('2026-01-01', now)).toBe('2026-01-01');
    expect(sinceTime(undefined, now)).toBeUndefined();
  });
});
