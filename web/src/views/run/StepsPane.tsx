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
  type TimeLine,
  timeLine,
  WHOLE,
  type Zoom,
  zoomed,
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
  readonly onStep: (step: number) => void;
  readonly onSide: (side: 'tree' | undefined) => void;
}

/** All steps of a run, one row each, on a time line or as a tree; in step with the transcript. */
export function StepsPane({ run, steps, step, side, onStep, onSide }: StepsPaneProps) {
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
  const [zoom, setZoom] = useZoom(list, whole, side === 'tree' ? undefined : steps.at(step));
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
          <button type="button" className="btn s q" onClick={() => setZoom(WHOLE)} title={t('run.zoom.say')}>
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

/** The part of the time line that is shown: wheel with Ctrl around the mouse, wheel with Shift aside, `+`, `-` and `0`. */
function useZoom(
  list: RefObject<HTMLDivElement | null>,
  whole: TimeLine,
  step: StepHeader | undefined,
): readonly [Zoom, (zoom: Zoom) => void] {
  const [zoom, set] = useState(WHOLE);
  const line = useRef(whole);
  line.current = whole;
  useEffect(() => {
    if (step) set(zoom => following(zoom, step, line.current));
  }, [step]);
  useEffect(() => {
    const rows = list.current;
    const turned = (event: WheelEvent) => {
      const place = rows?.querySelector('.tr')?.getBoundingClientRect();
      const aside = event.shiftKey ? event.deltaY || event.deltaX : 0;
      if (!place || !(event.ctrlKey || event.metaKey || aside)) return;
      event.preventDefault();
      const around = Math.min(1, Math.max(0, (event.clientX - place.left) / Math.max(1, place.width)));
      set(zoom => (aside ? moved(zoom, aside / 1000) : zoomed(zoom, 1.002 ** event.deltaY, around)));
    };
    rows?.addEventListener('wheel', turned, { passive: false });
    return () => rows?.removeEventListener('wheel', turned);
  }, [list]);
  const by = (factor: number) => {
    const bar = step && barOf(step, partOf(line.current, zoom));
    set(zoom => zoomed(zoom, factor, bar ? Math.min(1, bar.left + bar.width / 2) : 0.5));
  };
  useKeys({ '+': () => by(0.5), '=': () => by(0.5), '-': () => by(2), '0': () => set(WHOLE) });
  return [zoom, set];
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
