import { describe, expect, it } from 'vitest';
import { called, depended, sideOf } from './depended';

const change = (what: string, left: unknown, right: unknown) => ({ what, left, right });
const of = (changes: ReturnType<typeof change>[], lines: string[]) =>
  depended({ left: 'a', right: 'b', changes, lines } as Parameters<typeof depended>[0]);

describe('what two runs depended on', () => {
  it('is the same only where both are known', () => {
    expect(of([], [])).toEqual({ state: 'same' });
    expect(of([], ['the left run has no snapshot: what it ran on cannot be compared'])).toEqual({ state: 'unknown' });
  });

  it('names packages with both versions apart from all else', () => {
    const changes = [
      change('given.prompt_template', '3', '4'),
      change('packages.httpx', null, '1.0'),
      change('packages.openai', '3.56.0', '3.57.0'),
      change('tools.refund.source_digest', 'aa', 'bb'),
    ];
    expect(of(changes, ['said'])).toEqual({
      state: 'changed',
      packages: ['httpx – → 1.0', 'openai 3.56.0 → 3.57.0'],
      others: ['prompt_template', 'tools.refund.source_digest'],
    });
  });

  it('keeps every digit and tells nothing from an empty text', () => {
    expect(sideOf(9007199254740993n)).toBe('9007199254740993');
    expect([sideOf(null), sideOf(''), sideOf(false)]).toEqual([null, '', 'false']);
    expect(called('env.given.x')).toBe('env.given.x');
  });
});
