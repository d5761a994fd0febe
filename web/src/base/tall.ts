import { elementScroll, observeElementOffset, type Virtualizer } from '@tanstack/react-virtual';

/** Pixels of the tallest list that is laid out as it is: browsers cut elements off (Chromium at 2^25 pixels). */
export const TALLEST = 30_000_000;

/** How many pixels of a list a pixel of its scroll bar stands for, which goes over `range` pixels. */
export function perPixel(height: number, range: number): number {
  return height <= TALLEST || range <= 0 ? 1 : 1 + (height - TALLEST) / range;
}

type List = Virtualizer<HTMLDivElement, HTMLDivElement>;

function factor(list: List): number {
  const pane = list.scrollElement;
  return pane ? perPixel(list.getTotalSize(), pane.scrollHeight - pane.clientHeight) : 1;
}

/** Options of a virtual list that may be taller than an element can be. */
export const TALL = {
  observeElementOffset: (list: List, told: (offset: number, moving: boolean) => void) =>
    observeElementOffset(list, (offset, moving) => told(offset * factor(list), moving)),
  scrollToFn: (offset: number, options: Parameters<typeof elementScroll>[1], list: List) =>
    elementScroll(offset / factor(list), options, list),
};

/** Pixels by which items stand higher than their own place, since the list has been scrolled by fewer than it shows. */
export function lift(list: List): number {
  const offset = list.scrollOffset ?? 0;
  return offset - offset / factor(list);
}

/** Scrolls until a row can be seen, below a head that stays. All rows are `row` pixels high. */
export function reveal(list: List, index: number, row: number, head: number): void {
  const pane = list.scrollElement;
  if (!pane) return;
  const seen = pane.clientHeight - head;
  const offset = list.scrollOffset ?? 0;
  const wanted = Math.min(index * row, Math.max(offset, (index + 1) * row - seen));
  if (wanted !== offset) pane.scrollTop = wanted / factor(list);
}
