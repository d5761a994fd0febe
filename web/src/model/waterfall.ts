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
}

const at = (iso: string) => new Date(iso).getTime();

/** The time line of a run; `now` stands for the end of one that still goes on. Steps that a fork kept may lie before its own start. */
export function timeLine(run: Timed, firstStep: string | undefined, now: number): TimeLine {
  const from = Math.min(at(run.started_at), firstStep === undefined ? Number.POSITIVE_INFINITY : at(firstStep));
  return { from, total: Math.max((run.ended_at === null ? now : at(run.ended_at)) - from, 1) };
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

/** Round numbers for an axis over so many milliseconds, in the unit that suits them. */
export function axis(total: number): { readonly unit: TimeUnit; readonly marks: readonly AxisMark[] } {
  const seconds = total / 1000;
  const [unit, size] = UNITS.find(([, , below]) => seconds < below) ?? UNITS[3];
  const shown = marks(total / size);
  return { unit, marks: shown.map(value => ({ at: (value * size) / seconds, value })) };
}

/** Round numbers of seconds for an axis, from 0 up to at most `most` marks. */
function marks(total: number, most = 4): readonly number[] {
  const seconds = total / 1000;
  const raw = seconds / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(n => n * power).find(size => size >= raw) ?? raw;
  const count = Math.min(most, Math.floor(seconds / step));
  return Array.from({ length: count + 1 }, (_, n) => Number((n * step).toPrecision(3)));
}
