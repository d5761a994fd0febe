import { useVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useRef } from 'react';
import type { Pages } from '../../api/pages';
import type { RunDetail, StepHeader } from '../../api/types';
import { duration } from '../../base/format';
import { useWords } from '../../base/words';
import { timeLine } from '../../model/waterfall';
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
  const line = timeLine(run, useFirstStep(steps), Date.now());
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
        <span className="hide-n">{duration(run.seconds, language)}</span>
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
