import './waterfall.css';
import type { ReactNode } from 'react';
import type { StepHeader } from '../api/types';
import { UNITS } from '../base/format';
import { useWords } from '../base/words';
import { axis, barOf, outside, type TimeLine } from '../model/waterfall';
import { CutDot, Icon } from './Icon';
import { Kind } from './tags';

/** Height of a row, in pixels. */
export const ROW = 24;

/** The seconds above the bars. */
export function Axis({ line }: { readonly line: TimeLine }) {
  const { language } = useWords();
  const { unit, marks } = axis(line.total, line.offset);
  return (
    <div className="axis" aria-hidden="true">
      {marks.map(({ at, value }, n) => (
        <span key={value} style={{ left: `${at * 100}%` }}>
          {value}
          {n === 0 && ` ${UNITS[language][unit]}`}
        </span>
      ))}
    </div>
  );
}

/** What the gutter of a row says: kept, new, of another road, or nothing where there is no fork. */
type Gutter = 'pre' | '' | 'ghost' | 'plain';

interface StepRowProps {
  readonly index: number;
  readonly top: number;
  readonly header: StepHeader | undefined;
  readonly gutter: Gutter;
  /** The cut of a fork stands above this row. */
  readonly cut: boolean;
  readonly open: boolean;
  readonly tree?: boolean;
  /** The row can be pressed; without it the row is a picture. */
  readonly onStep?: ((step: number) => void) | undefined;
  readonly children: ReactNode;
}

/** One step: its number, its kind, and what stands beside them. */
export function StepRow({ index, top, header, gutter, cut, open, tree = false, onStep, children }: StepRowProps) {
  const look = `wfr ${gutter} ${open ? 'sel' : ''} ${tree ? 'intree' : ''}`;
  const inside = (
    <>
      {cut && (
        <span className="wfcut">
          <CutDot />
        </span>
      )}
      <span>{index}</span>
      {header && (
        <>
          {tree && <span className="indent" style={{ width: Math.min(header.depth, 8) * 10 }} />}
          <Kind kind={header.kind} />
          {children}
        </>
      )}
    </>
  );
  const style = { transform: `translateY(${top}px)` };
  if (!onStep) {
    return (
      <div className={look} style={style}>
        {inside}
      </div>
    );
  }
  return (
    <button
      type="button"
      className={look}
      style={style}
      tabIndex={open ? 0 : -1}
      aria-current={open ? 'step' : undefined}
      onClick={() => onStep(index)}
    >
      {inside}
    </button>
  );
}

interface BarProps {
  readonly header: StepHeader;
  readonly kept: boolean;
  /** The run is a fork: what ran for real in it is a claim of its own. */
  readonly fork: boolean;
  readonly line: TimeLine;
}

/** A step on the time line. */
export function Bar({ header, kept, fork, line }: BarProps) {
  const { left, width } = barOf(header, line);
  return (
    <span className="tr">
      <span className="vh">{header.name}</span>
      {!outside(header, line) && (
        <i className={barLook(header, kept, fork)} style={{ left: `${left * 100}%`, width: `${width * 100}%` }} />
      )}
      <Signs header={header} />
    </span>
  );
}

function barLook(header: StepHeader, kept: boolean, fork: boolean): string {
  if (header.source === 'miss') return 'miss';
  if (header.error_class) return 'bad';
  if (kept) return header.kind === 'llm' ? 'kept' : 'keptt';
  if (header.kind === 'llm') return '';
  if (header.source === 'cassette') return 'cassette';
  if (header.kind === 'agent') return 'span';
  return header.source === 'live' && (fork || header.effect === 'write') ? 'live' : 'tool';
}

/** What must be seen of a step at any size. */
export function Signs({ header }: { readonly header: StepHeader }) {
  if (header.prompt_changed || header.tools_changed) return <Icon sign="flag" />;
  return header.error_class && header.source !== 'miss' ? <Icon sign="error" className="bad" /> : null;
}
