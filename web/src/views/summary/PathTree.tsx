import { useEffect, useRef, useState } from 'react';
import type { Summary } from '../../api/types';
import { jsonText } from '../../base/json';
import { plain } from '../../base/visible';
import { useWords } from '../../base/words';
import { type Arm, armOf, arms } from '../../model/arms';
import { cutApart, drawingOf, lineOf, type Stretch } from '../../model/pathtree';

const BEND = 48;
const LEFT = 16;
const STROKES: Readonly<Record<Arm, string>> = {
  observed: 'var(--c3)',
  control: 'var(--ink-bar)',
  candidate: 'var(--accent)',
};

/** Width of the answers at the ends of the roads. */
const ANSWERS = 300;

/** The roads of all runs, one strand a run: what was kept, where they went together, where they parted, and what they said. */
export function PathTree({ summary }: { readonly summary: Summary }) {
  const { t } = useWords();
  const [room, setRoom] = useState(0);
  const pane = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const shown = pane.current;
    if (!shown) return;
    const watch = new ResizeObserver(() => setRoom(shown.clientWidth));
    watch.observe(shown);
    return () => watch.disconnect();
  }, []);
  const step = cutOf(summary);
  const paths = step === null ? summary.paths : cutApart(summary.paths, step);
  const drawing = drawingOf(paths);
  const n = summary.runs.length;
  const armOfRun = new Map(summary.runs.map(run => [run.id, armOf(run)]));
  const cut = step !== null && paths[0]?.children.length && paths[0].stretch.every(one => one.idx < step) ? step : null;
  const column = Math.max(columnFor(drawing.stretches), (room - ANSWERS - LEFT * 2) / Math.max(1, drawing.depth));
  const band = drawing.strands.flatMap(strand => strand.at.filter(at => at.depth === 0).map(at => at.y));
  const [top, bottom] = [Math.min(...band) - 24, Math.max(...band) + 8];
  return (
    <section className="paths" aria-label={t('summary.paths')}>
      <div className="row">
        <h2>{t('summary.paths')}</h2>
        <span className="dim">{t('summary.pathsSay')}</span>
        <span className="grow" />
        {arms(summary.runs).map(([arm, members]) => (
          <span key={arm} className="t2 key">
            <i className={`sw arm-${arm}`} /> {t(`summary.${arm}`)} {members.length}
          </span>
        ))}
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a picture that scrolls must be reachable with keys */}
      <div className="pathscroll" role="group" tabIndex={0} aria-label={t('summary.paths')} ref={pane}>
        <svg
          width={drawing.depth * column + ANSWERS + LEFT * 2}
          height={drawing.height}
          role="img"
          aria-label={t('summary.pathsSay')}
        >
          <defs>
            <pattern id="kepthatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
              <path d="M0 0V7" stroke="var(--hatch)" strokeWidth="2" />
            </pattern>
          </defs>
          <g transform={`translate(${LEFT} 0)`}>
            {drawing.strands.map(strand => (
              <path
                key={strand.run}
                d={lineOf(strand, column, BEND, column - 12)}
                fill="none"
                stroke={STROKES[armOfRun.get(strand.run) ?? 'candidate']}
                strokeWidth={drawing.width}
              />
            ))}
            {cut !== null && (
              <>
                <rect x="0" y={top} width={column} height={bottom - top} fill="var(--surface)" />
                <rect x="0" y={top} width={column} height={bottom - top} fill="url(#kepthatch)" className="keptrect" />
                <path d={`M${column} 4V${drawing.height - 4}`} stroke="var(--accent)" strokeWidth="2" />
                <text x={column + 8} y={14} className="cutword">
                  {t('card.cut', { step: cut })}
                </text>
              </>
            )}
            {drawing.stretches.map((stretch, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: stretches have no other name than their place
              <Words key={at} stretch={stretch} n={n} column={column} kept={cut !== null && stretch.depth === 0} />
            ))}
            {drawing.stretches.map((stretch, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: stretches have no other name than their place
              <Ending key={at} stretch={stretch} summary={summary} x={(stretch.depth + 1) * column} />
            ))}
          </g>
        </svg>
      </div>
    </section>
  );
}

const LETTERS = 34;

/** What the runs that end here answered: the first words of the first of them. */
function Ending({ stretch, summary, x }: { readonly stretch: Stretch; readonly summary: Summary; readonly x: number }) {
  const { t } = useWords();
  const run = summary.runs.find(one => stretch.ending.includes(one.id));
  if (!run) return null;
  const said = run.answer === null ? t('compare.noAnswer') : plain(textOf(run.answer));
  const text = `${t('summary.group', { n: String(run.group + 1) })}: ${said.length > LETTERS ? `${said.slice(0, LETTERS)}…` : said}`;
  return (
    <text x={x} y={stretch.y + 4} className={run.answer === null ? 'd' : 'said'}>
      {text}
      <title>{said}</title>
    </text>
  );
}

function textOf(answer: unknown): string {
  return typeof answer === 'string' ? answer : jsonText(answer);
}

/** A column wide enough for its longest words and the count beside them. */
function columnFor(stretches: readonly Stretch[]): number {
  const longest = Math.max(12, ...stretches.map(stretch => stretch.label.length));
  return Math.min(460, longest * 7 + BEND + 80);
}

/** The step at which all forks were cut, if that was the same. */
function cutOf(summary: Summary): number | null {
  const steps = new Set(summary.runs.filter(run => armOf(run) !== 'observed').map(run => run.forked_from_step));
  const [step] = steps;
  return steps.size === 1 && step != null ? step : null;
}

interface WordsProps {
  readonly stretch: Stretch;
  readonly n: number;
  readonly column: number;
  /** The stretch that all forks kept. */
  readonly kept: boolean;
}

function Words({ stretch, n, column, kept }: WordsProps) {
  const { t } = useWords();
  const x = stretch.depth * column + (stretch.depth === 0 ? 8 : BEND + 4);
  const sign = stretch.missed ? ' ◇' : '';
  return (
    <>
      <text x={x} y={stretch.y - 8} className={`m ${stretch.missed ? 'missed' : stretch.failed ? 'failed' : ''}`}>
        {stretch.label || t('compare.answer')}
        {sign}
        {stretch.missed && <title>{t('source.miss')}</title>}
      </text>
      <text x={(stretch.depth + 1) * column - 14} y={stretch.y - 8} textAnchor="end" className="d">
        {kept && `${t('source.recorded')} · `}
        {t('summary.came', { k: String(stretch.runs), n })}
      </text>
    </>
  );
}
