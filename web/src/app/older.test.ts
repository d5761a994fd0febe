import { describe, expect, it } from 'vitest';
import { isOlder } from './Older';

describe('a page', () => {
  it('is older where the server has another build', () => expect(isOlder('a', 'b')).toBe(true));
  it.each([
    ['a', 'a'],
    ['a', 'unknown'],
    ['a', null],
    [undefined, 'b'],
  ])('is not where it is the same or one is unknown (%s, %s)', (mine, served) =>
    expect(isOlder(mine, served)).toBe(false),
  );
});
