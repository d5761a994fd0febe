/** Where a step lies on the time line of its run, as shares of the whole. */
export interface Bar {
  readonly left: number;
  readonly width: number;
}

interface Timed {
  readonly started_at: string;
  readonly ended_at: string | null;
}

/** The time line of a run, in milliseconds. */
export interface TimeLine {
  readonly from: number;
  readonly total: number;
  /** From the beginning of the run to that of the line. */
  readonly offset: number;
}

const at = (iso: string) => new Date(iso).getTime();

/** The time line of a run; `now` stands for the end of one that still goes on. Steps that a fork kept may lie before its own start. */
export function timeLine(run: Timed, firstStep: string | undefined, now: number): TimeLine {
  const from = Math.min(at(run.started_at), firstStep === undefined ? Number.POSITIVE_INFINITY : at(firstStep));
  return { from, total: Math.max((run.ended_at === null ? now : at(run.ended_at)) - from, 1), offset: 0 };
}

/** The part of a time line that is shown, as shares of the whole. */
export interface Zoom {
  readonly left: number;
  readonly right: number;
}

export const WHOLE: Zoom = { left: 0, right: 1 };
const CLOSEST = 1e-6;

/** A part that is so many times as wide, around a place of what is shown (a share of it) that stays where it is. */
export function zoomed(zoom: Zoom, by: number, around: number): Zoom {
  const width = zoom.right - zoom.left;
  const wide = Math.max(CLOSEST, width * by);
  return inside(zoom.left + (width - wide) * around, wide);
}

/** A part further on, by a share of what is shown; no further than the ends of the line. */
export function moved(zoom: Zoom, by: number): Zoom {
  const width = zoom.right - zoom.left;
  return inside(zoom.left + by * width, width);
}

/** The ends of a part are rounded: twice its half may lack a little of the whole. */
function inside(left: number, width: number): Zoom {
  if (width > 1 - CLOSEST) return WHOLE;
  const first = Math.min(1 - width, Math.max(0, left));
  return { left: first, right: first + width };
}

/** The part of a line as a line. */
export function partOf(line: TimeLine, zoom: Zoom): TimeLine {
  const offset = line.total * zoom.left;
  return { from: line.from + offset, total: line.total * (zoom.right - zoom.left), offset: line.offset + offset };
}

/** The part moved, as wide as it was, so that the middle of a step is in its middle; the same where the step can be seen. */
export function following(zoom: Zoom, step: Timed, line: TimeLine): Zoom {
  if (!outside(step, partOf(line, zoom))) return zoom;
  const { left, width } = barOf(step, line);
  const wide = zoom.right - zoom.left;
  return inside(left + width / 2 - wide / 2, wide);
}

/** Whether a step lies wholly before or behind a line. */
export function outside(step: Timed, line: TimeLine): boolean {
  return (step.ended_at !== null && at(step.ended_at) < line.from) || at(step.started_at) > line.from + line.total;
}

/** A part in seconds from the beginning of its run: it stays the same part while the run goes on. */
export interface Range {
  readonly from: number;
  readonly to: number;
}

/** A part in seconds; undefined for the whole. */
export function rangeOf(zoom: Zoom, line: TimeLine, run: Timed): Range | undefined {
  if (zoom.left <= 0 && zoom.right >= 1) return undefined;
  const before = line.from - at(run.started_at);
  return { from: (before + line.total * zoom.left) / 1000, to: (before + line.total * zoom.right) / 1000 };
}

/** The part that a range names, as far as the line has it; the whole where it has none of it. */
export function zoomOf(range: Range | undefined, line: TimeLine, run: Timed): Zoom {
  if (range === undefined) return WHOLE;
  const share = (seconds: number) => (seconds * 1000 + at(run.started_at) - line.from) / line.total;
  const [left, right] = [Math.max(0, share(range.from)), Math.min(1, share(range.to))];
  return left < right ? inside(left, Math.max(CLOSEST, right - left)) : WHOLE;
}

/** Three digits or four of its width: less than what one pixel shows. */
const DIGITS = 3;
const MOST_DIGITS = 9;
const RANGE = /^(-?\d{1,9}(?:\.\d{1,9})?)\.\.(-?\d{1,9}(?:\.\d{1,9})?)$/;

/** A range as a short text, rounded: `1.25..3.5`. */
export function rangeText(range: Range | undefined): string | undefined {
  if (range === undefined) return undefined;
  const digits = Math.min(MOST_DIGITS, Math.max(0, DIGITS - Math.floor(Math.log10(range.to - range.from))));
  const short = (seconds: number) =>
    seconds
      .toFixed(digits)
      .replace(/(\.\d*?)0+$/, '$1')
      .replace(/\.$/, '');
  return `${short(range.from)}..${short(range.to)}`;
}

/** What such a text names; undefined where it is none. */
export function readRange(text: string | undefined): Range | undefined {
  const [, from, to] = RANGE.exec(text ?? '') ?? [];
  const range = { from: Number(from), to: Number(to) };
  return range.from < range.to ? range : undefined;
}

/** Where a step lies; one that is still open reaches to the end. */
export function barOf(step: Timed, line: TimeLine): Bar {
  const left = clamp((at(step.started_at) - line.from) / line.total);
  const right = step.ended_at === null ? 1 : clamp((at(step.ended_at) - line.from) / line.total);
  return { left, width: Math.max(0, right - left) };
}

function clamp(share: number): number {
  return Math.min(1, Math.max(0, share));
}

const UNITS = [
  ['ms', 0.001, 1],
  ['s', 1, 120],
  ['m', 60, 7200],
  ['h', 3600, Number.POSITIVE_INFINITY],
] as const;
export type TimeUnit = (typeof UNITS)[number][0];

/** A mark of an axis: how far from the left, as a share of the whole, and its number in the unit. */
export interface AxisMark {
  readonly at: number;
  readonly value: number;
}

/** Round numbers for an axis over so many milliseconds that begins at `from`, in the unit that suits them. */
export function axis(total: number, from = 0): { readonly unit: TimeUnit; readonly marks: readonly AxisMark[] } {
  const [seconds, first] = [total / 1000, from / 1000];
  const [unit, size] = UNITS.find(([, , below]) => first + seconds < below) ?? UNITS[3];
  const shown = marks(seconds / size, first / size);
  return { unit, marks: shown.map(value => ({ at: (value * size - first) / seconds, value })) };
}

const MOST = 4;

/** Round numbers from `first` on, over so much; at most `MOST` and one. */
function marks(total: number, first: number): readonly number[] {
  const raw = total / MOST;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(n => n * power).find(size => size >= raw) ?? raw;
  const start = Math.ceil(first / step);
  const count = Math.min(MOST, Math.floor((first + total) / step) - start);
  return Array.from({ length: count + 1 }, (_, n) => Number(((start + n) * step).toPrecision(9)));
}
