import { useVirtualizer } from '@tanstack/react-virtual';
import { type RefObject, useEffect, useRef, useState } from 'react';
import type { Pages } from '../../api/pages';
import type { RunDetail, StepHeader } from '../../api/types';
import { duration } from '../../base/format';
import { useKeys } from '../../base/keys';
import { useWords } from '../../base/words';
import {
  barOf,
  following,
  moved,
  partOf,
  rangeOf,
  rangeText,
  readRange,
  type TimeLine,
  timeLine,
  WHOLE,
  type Zoom,
  zoomed,
  zoomOf,
} from '../../model/waterfall';
import { Seg } from '../../widgets/controls';
import { Axis, Bar, ROW, Signs, StepRow } from '../../widgets/Waterfall';
import { Family } from './Family';
import { Legend } from './Legend';

interface StepsPaneProps {
  readonly run: RunDetail;
  readonly steps: Pages<StepHeader>;
  readonly step: number;
  readonly side: 'tree' | undefined;
  /** The part of the time line that the address names. */
  readonly range: string | undefined;
  readonly onStep: (step: number) => void;
  readonly onSide: (side: 'tree' | undefined) => void;
  readonly onRange: (range: string | undefined) => void;
}

/** All steps of a run, one row each, on a time line or as a tree; in step with the transcript. */
export function StepsPane({ run, steps, step, side, range, onStep, onSide, onRange }: StepsPaneProps) {
  const { t, language } = useWords();
  const pane = useRef<HTMLElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const total = steps.total ?? run.steps;
  const rows = useVirtualizer({
    count: total,
    getScrollElement: () => pane.current,
    estimateSize: () => ROW,
    overscan: 12,
    scrollMargin: list.current?.offsetTop ?? 0,
    initialRect: { width: 200, height: 600 },
  });
  const items = rows.getVirtualItems();
  const { look } = steps;
  const [first, last] = [items[0]?.index ?? 0, items.at(-1)?.index ?? 0];
  useEffect(() => look(first, last), [look, first, last]);
  useEffect(() => rows.scrollToIndex(step, { align: 'auto' }), [rows, step]);
  const fork = run.forked_from_step !== null;
  const whole = timeLine(run, useFirstStep(steps), Date.now());
  const [part, setPart] = useAddressed(range, onRange);
  const zoom = zoomOf(part, whole, run);
  const change = (to: (zoom: Zoom) => Zoom) => setPart(before => rangeOf(to(zoomOf(before, whole, run)), whole, run));
  useZooming(list, change, zoom, whole, side === 'tree' ? undefined : steps.at(step));
  const line = partOf(whole, zoom);
  return (
    <nav className="pane wf" aria-label={t('run.steps')} ref={pane}>
      <h2 className="h3">
        <Seg
          label={t('run.steps')}
          value={side ?? 'waterfall'}
          choices={[
            { value: 'waterfall', label: t('run.waterfall') },
            { value: 'tree', label: t('run.tree') },
          ]}
          onChoose={value => onSide(value === 'tree' ? 'tree' : undefined)}
        />
        {zoom === WHOLE || side === 'tree' ? (
          <span className="hide-n">{duration(run.seconds, language)}</span>
        ) : (
          <button type="button" className="btn s q" onClick={() => change(() => WHOLE)} title={t('run.zoom.say')}>
            {t('run.zoom.whole')}
          </button>
        )}
      </h2>
      {side === 'tree' ? <div className="axis" /> : <Axis line={line} />}
      <div ref={list} className="wfrows" style={{ height: rows.getTotalSize() }}>
        {items.map(item => {
          const header = steps.at(item.index);
          const kept = fork && header?.source === 'recorded';
          return (
            <StepRow
              key={item.key}
              index={item.index}
              top={item.start - rows.options.scrollMargin}
              header={header}
              gutter={fork ? (kept ? 'pre' : '') : 'plain'}
              cut={run.forked_from_step === item.index}
              open={item.index === step}
              tree={side === 'tree'}
              onStep={onStep}
            >
              {header &&
                (side === 'tree' ? (
                  <TreeName header={header} />
                ) : (
                  <Bar header={header} kept={kept} fork={fork} line={line} />
                ))}
            </StepRow>
          );
        })}
      </div>
      <div className="sep" />
      <Family run={run} />
      <div className="sep" />
      <Legend fork={run.parent_run_id !== null} />
    </nav>
  );
}

/** Milliseconds that a part has to stay before the address names it: browsers refuse addresses that change at every turn. */
const SETTLED = 250;

/** The part of the time line that is shown; the address names it, and another address another one. */
function useAddressed(asked: string | undefined, tell: (range: string | undefined) => void) {
  const [part, set] = useState(() => readRange(asked));
  const told = useRef(asked);
  useEffect(() => {
    if (asked === told.current) return;
    told.current = asked;
    set(readRange(asked));
  }, [asked]);
  useEffect(() => {
    const text = rangeText(part);
    if (text === told.current) return;
    const settled = setTimeout(() => {
      told.current = text;
      tell(text);
    }, SETTLED);
    return () => clearTimeout(settled);
  }, [part, tell]);
  return [part, set] as const;
}

/** What changes the part: wheel with Ctrl around the mouse, wheel with Shift aside, `+`, `-` and `0`, and another open step. */
function useZooming(
  list: RefObject<HTMLDivElement | null>,
  change: (to: (zoom: Zoom) => Zoom) => void,
  zoom: Zoom,
  line: TimeLine,
  step: StepHeader | undefined,
): void {
  const changed = useRef(change);
  changed.current = change;
  const followed = useRef<number>(undefined);
  useEffect(() => {
    if (!step || step.idx === followed.current) return;
    // The step that the page begins with may lie outside of what its address shows.
    if (followed.current !== undefined) changed.current(zoom => following(zoom, step, line));
    followed.current = step.idx;
  });
  useEffect(() => {
    const rows = list.current;
    const turned = (event: WheelEvent) => {
      const place = rows?.querySelector('.tr')?.getBoundingClientRect();
      const aside = event.shiftKey ? event.deltaY || event.deltaX : 0;
      if (!place || !(event.ctrlKey || event.metaKey || aside)) return;
      event.preventDefault();
      const around = Math.min(1, Math.max(0, (event.clientX - place.left) / Math.max(1, place.width)));
      changed.current(zoom => (aside ? moved(zoom, aside / 1000) : zoomed(zoom, 1.002 ** event.deltaY, around)));
    };
    rows?.addEventListener('wheel', turned, { passive: false });
    return () => rows?.removeEventListener('wheel', turned);
  }, [list]);
  const by = (factor: number) => {
    const bar = step && barOf(step, partOf(line, zoom));
    change(zoom => zoomed(zoom, factor, bar ? Math.min(1, bar.left + bar.width / 2) : 0.5));
  };
  useKeys({ '+': () => by(0.5), '=': () => by(0.5), '-': () => by(2), '0': () => change(() => WHOLE) });
}

/** When the first step began; its page is not always in view. */
function useFirstStep(steps: Pages<StepHeader>): string | undefined {
  const known = useRef<string>(undefined);
  known.current ??= steps.at(0)?.started_at;
  return known.current;
}

function TreeName({ header }: { readonly header: StepHeader }) {
  return (
    <span className={`ell treename ${header.source === 'miss' ? 'missed' : header.error_class ? 'failed' : ''}`}>
      {header.name} <Signs header={header} />
    </span>
  );
}
