import type { Summary } from '../../api/types';
import { useWords } from '../../base/words';
import { type Arm, armOf, arms } from '../../model/arms';
import { drawingOf, lineOf, type Stretch } from '../../model/pathtree';

const BEND = 48;
const LEFT = 16;
const STROKES: Readonly<Record<Arm, string>> = {
  observed: 'var(--c3)',
  control: 'var(--ink-bar)',
  candidate: 'var(--accent)',
};

/** The roads of all runs, one strand a run: where they went together, and where they parted. */
export function PathTree({ summary }: { readonly summary: Summary }) {
  const { t } = useWords();
  const drawing = drawingOf(summary.paths);
  const n = summary.runs.length;
  const armOfRun = new Map(summary.runs.map(run => [run.id, armOf(run)]));
  const cut = cutOf(summary);
  const column = columnFor(drawing.stretches);
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
      <div className="pathscroll" role="group" tabIndex={0} aria-label={t('summary.paths')}>
        <svg
          width={drawing.depth * column + LEFT * 2}
          height={drawing.height}
          role="img"
          aria-label={t('summary.pathsSay')}
        >
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
            {cut !== null && <path d={`M${column} 4V${drawing.height - 4}`} stroke="var(--accent)" strokeWidth="2" />}
            {cut !== null && (
              <text x={column + 8} y={14} className="cutword">
                {t('card.cut', { step: cut })}
              </text>
            )}
            {drawing.stretches.map((stretch, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: stretches have no other name than their place
              <Words key={at} stretch={stretch} n={n} column={column} shared={at === 0 && stretch.runs === n} />
            ))}
          </g>
        </svg>
      </div>
    </section>
  );
}

/** A column wide enough for its longest words and the count beside them. */
function columnFor(stretches: readonly Stretch[]): number {
  const longest = Math.max(12, ...stretches.map(stretch => stretch.label.length));
  return Math.min(460, longest * 7 + BEND + 80);
}

/** The step at which all forks left the first stretch, if they all did there. */
function cutOf(summary: Summary): number | null {
  const steps = new Set(summary.runs.filter(run => armOf(run) !== 'observed').map(run => run.forked_from_step));
  const [step] = steps;
  const first = summary.paths[0];
  return steps.size === 1 && step != null && first?.stretch.length === step && first.children.length > 0 ? step : null;
}

interface WordsProps {
  readonly stretch: Stretch;
  readonly n: number;
  readonly column: number;
  readonly shared: boolean;
}

function Words({ stretch, n, column, shared }: WordsProps) {
  const { t } = useWords();
  const x = stretch.depth * column + (shared ? 0 : BEND + 4);
  const sign = stretch.missed ? ' ◇' : '';
  return (
    <>
      <text x={x} y={stretch.y - 8} className={`m ${stretch.missed ? 'missed' : stretch.failed ? 'failed' : ''}`}>
        {stretch.label || t('compare.answer')}
        {sign}
        {stretch.missed && <title>{t('source.miss')}</title>}
      </text>
      <text x={(stretch.depth + 1) * column - 14} y={stretch.y - 8} textAnchor="end" className="d">
        {t('summary.came', { k: String(stretch.runs), n })}
      </text>
    </>
  );
}
