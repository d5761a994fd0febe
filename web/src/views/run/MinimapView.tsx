import { useEffect, useRef, useState } from 'react';
import type { Column, RunDetail } from '../../api/types';
import { useWords } from '../../base/words';
import { columnAt, heights } from '../../model/minimap';
import { Tag } from '../../widgets/tags';
import { useMinimap } from './queries';

interface MinimapProps {
  readonly run: RunDetail;
  readonly total: number;
  readonly view: readonly [number, number];
  readonly step: number;
  readonly onStep: (step: number) => void;
}

const HEIGHT = 56;

/** The whole of a long run in one picture: tokens by step, and whatever must be seen at any size. */
export function MinimapView({ run, total, view, step, onStep }: MinimapProps) {
  const { t } = useWords();
  const map = useMinimap(run.id, true);
  const columns = map.data?.columns ?? [];
  const misses = columns.filter(column => column.miss).length;
  const errors = columns.filter(column => column.error).length;
  return (
    <section className="minimap" aria-label={t('run.minimap')}>
      <Picture columns={columns} total={total} view={view} step={step} onStep={onStep} />
      <p className="row note">
        <span>{t('run.inView', { first: view[0], last: view[1], total })}</span>
        <span className="hide-n">· {t('run.column', { n: map.data?.width ?? 1 })}</span>
        <span className="grow" />
        {misses > 0 && (
          <Tag look="miss" sign="miss">
            {t('source.misses', { n: run.counts.miss || misses })}
          </Tag>
        )}
        {errors > 0 && (
          <Tag look="error" sign="error">
            {t('source.errors', { n: errors })}
          </Tag>
        )}
      </p>
    </section>
  );
}

interface PictureProps {
  readonly columns: readonly Column[];
  readonly total: number;
  readonly view: readonly [number, number];
  readonly step: number;
  readonly onStep: (step: number) => void;
}

function Picture({ columns, total, view, step, onStep }: PictureProps) {
  const { t } = useWords();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const shown = canvas.current;
    if (!shown) return;
    const watch = new ResizeObserver(() => setWidth(shown.clientWidth));
    watch.observe(shown);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (canvas.current && width) draw(canvas.current, width, columns, view, total);
  });
  const go = (x: number) => {
    const column = columns[columnAt(x, width, columns.length)];
    if (column) onStep(column.first);
  };
  return (
    <canvas
      ref={canvas}
      className="map"
      height={HEIGHT}
      role="slider"
      tabIndex={0}
      aria-label={t('run.minimap')}
      aria-valuemin={0}
      aria-valuemax={total - 1}
      aria-valuenow={step}
      onPointerDown={event => {
        event.currentTarget.setPointerCapture(event.pointerId);
        go(event.nativeEvent.offsetX);
      }}
      onPointerMove={event => event.buttons === 1 && go(event.nativeEvent.offsetX)}
      onKeyDown={event => {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (by) onStep(Math.min(total - 1, Math.max(0, step + by * (event.shiftKey ? view[1] - view[0] || 1 : 1))));
      }}
    />
  );
}

/** Bars first, then what must survive at any size, then the frame of the view. */
function draw(
  canvas: HTMLCanvasElement,
  width: number,
  columns: readonly Column[],
  view: readonly [number, number],
  total: number,
) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = HEIGHT * ratio;
  const pen = canvas.getContext('2d');
  if (!pen) return;
  pen.scale(ratio, ratio);
  const style = getComputedStyle(canvas);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const size = width / Math.max(1, columns.length);
  const bar = (at: number, height: number, fill: string, wide: number) => {
    pen.fillStyle = fill;
    pen.fillRect(at * size, HEIGHT - height, Math.max(wide, 1), height);
  };
  const tall = heights(columns, HEIGHT - 10);
  const cut = columns.findIndex(column => column.cut);
  for (const [at, column] of columns.entries()) {
    const model =
      column.last > column.first ? column.model_calls / (column.last - column.first + 1) : column.model_calls;
    bar(at, tall[at] ?? 1, colour(at < cut ? '--hatch' : '--c3'), size - 0.5);
    bar(at, (tall[at] ?? 1) * Math.min(1, model), colour(at < cut ? '--kept-bar' : '--ink-bar'), size - 0.5);
  }
  for (const [at, column] of columns.entries()) {
    if (column.flag) bar(at, 8, colour('--accent'), Math.max(size, 3));
    if (column.cut) bar(at, HEIGHT, colour('--accent'), 2);
    if (column.miss) bar(at, HEIGHT, colour('--miss-bar'), Math.max(size, 4));
    if (column.error && !column.miss) bar(at, HEIGHT, colour('--error-bar'), Math.max(size, 4));
  }
  pen.strokeStyle = colour('--accent');
  pen.lineWidth = 2;
  const left = (view[0] / total) * width;
  pen.strokeRect(left + 1, 1, Math.max(6, ((view[1] + 1) / total) * width - left) - 2, HEIGHT - 2);
}
