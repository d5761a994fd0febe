import { describe, expect, it } from 'vitest';
import { perPixel, TALLEST } from './tall';

describe('a list that is taller than an element', () => {
  const window = 800;

  it('is scrolled pixel by pixel where it is not', () => {
    expect(perPixel(36 * 100_000, 36 * 100_000 - window)).toBe(1);
    expect(perPixel(TALLEST, TALLEST - window)).toBe(1);
    expect(perPixel(500, 0)).toBe(1);
  });

  it.each([1_000_001, 5_000_000])('shows its last row at the end of the bar: %d rows', count => {
    const height = 36 * count;
    const range = TALLEST - window;
    expect(range * perPixel(height, range)).toBeCloseTo(height - window, 3);
  });
});
