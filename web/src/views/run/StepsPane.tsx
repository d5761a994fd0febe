import { useVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useRef } from 'react';
import type { Pages } from '../../api/pages';
import type { RunDetail, StepHeader } from '../../api/types';
import { duration } from '../../base/format';
import { useWords } from '../../base/words';
import { barOf, marks, type TimeLine, timeLine } from '../../model/waterfall';
import { Seg } from '../../widgets/controls';
import { CutDot, Icon } from '../../widgets/Icon';
import { Kind } from '../../widgets/tags';
import { Family } from './Family';
import { Legend } from './Legend';

const ROW = 24;

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
        {items.map(item => (
          <Row
            key={item.key}
            index={item.index}
            top={item.start - rows.options.scrollMargin}
            header={steps.at(item.index)}
            kept={run.forked_from_step !== null && steps.at(item.index)?.source === 'recorded'}
            cut={run.forked_from_step === item.index}
            fork={run.forked_from_step !== null}
            open={item.index === step}
            tree={side === 'tree'}
            line={line}
            onStep={onStep}
          />
        ))}
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

function Axis({ line }: { readonly line: TimeLine }) {
  const shown = marks(line.total);
  return (
    <div className="axis" aria-hidden="true">
      {shown.map(mark => (
        <span key={mark} style={{ left: `${(mark * 100_000) / line.total}%` }}>
          {mark}
        </span>
      ))}
    </div>
  );
}

interface RowProps {
  readonly index: number;
  readonly top: number;
  readonly header: StepHeader | undefined;
  readonly kept: boolean;
  readonly cut: boolean;
  readonly fork: boolean;
  readonly open: boolean;
  readonly tree: boolean;
  readonly line: TimeLine;
  readonly onStep: (step: number) => void;
}

function Row({ index, top, header, kept, cut, fork, open, tree, line, onStep }: RowProps) {
  const look = `wfr ${fork ? (kept ? 'pre' : '') : 'plain'} ${open ? 'sel' : ''} ${tree ? 'intree' : ''}`;
  return (
    <button
      type="button"
      className={look}
      style={{ transform: `translateY(${top}px)` }}
      tabIndex={open ? 0 : -1}
      aria-current={open ? 'step' : undefined}
      onClick={() => onStep(index)}
    >
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
          {tree ? <TreeName header={header} /> : <Bar header={header} kept={kept} line={line} />}
        </>
      )}
    </button>
  );
}

function TreeName({ header }: { readonly header: StepHeader }) {
  return (
    <span className={`ell treename ${header.source === 'miss' ? 'missed' : header.error_class ? 'failed' : ''}`}>
      {header.name} <Signs header={header} />
    </span>
  );
}

function Bar({ header, kept, line }: { readonly header: StepHeader; readonly kept: boolean; readonly line: TimeLine }) {
  const { left, width } = barOf(header, line);
  return (
    <span className="tr">
      <span className="vh">{header.name}</span>
      <i className={barLook(header, kept)} style={{ left: `${left * 100}%`, width: `${width * 100}%` }} />
      <Signs header={header} />
    </span>
  );
}

function barLook(header: StepHeader, kept: boolean): string {
  if (header.source === 'miss') return 'miss';
  if (header.error_class) return 'bad';
  if (kept) return header.kind === 'llm' ? 'kept' : 'keptt';
  if (header.kind === 'llm') return '';
  return header.source === 'cassette' ? 'cassette' : header.kind === 'agent' ? 'span' : 'tool';
}

function Signs({ header }: { readonly header: StepHeader }) {
  if (header.prompt_changed || header.tools_changed) return <Icon sign="flag" />;
  return header.error_class && header.source !== 'miss' ? <Icon sign="error" className="bad" /> : null;
}
