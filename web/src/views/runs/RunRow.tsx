import { Link } from '@tanstack/react-router';
import type { Run } from '../../api/types';
import { duration, moment, money } from '../../base/format';
import { useWords } from '../../base/words';
import type { Line } from '../../model/descent';
import { changedPlaces } from '../../model/overrides';
import { CoverageTag, SourceCount, Status } from '../../widgets/tags';
import { Count, RunText, Unknown } from '../../widgets/text';

interface RowProps {
  readonly run: Run;
  readonly selected: boolean;
  readonly current: boolean;
  /** Where the row's line of descent goes on. */
  readonly line: Line;
  readonly onSelect: () => void;
}

/** One run of the list. */
export function RunRow({ run, selected, current, line, onSelect }: RowProps) {
  const { t, language } = useWords();
  return (
    <>
      <span className="cell" role="cell">
        <input
          type="checkbox"
          aria-label={t('runs.select', { name: run.name })}
          checked={selected}
          tabIndex={current ? 0 : -1}
          onChange={onSelect}
        />
      </span>
      <span className="cell name" role="cell">
        <Branch fork={run.parent_run_id !== null} line={line} />
        <span className="grow">
          <span className="ell line">
            <Link to="/runs/$id" params={{ id: run.id }} search={{}} tabIndex={current ? 0 : -1}>
              <RunText>{run.name}</RunText>
            </Link>
          </span>
          <About run={run} />
        </span>
      </span>
      <span className="cell t2 hide-n" role="cell">
        <span className="ell">
          <RunText>{run.agent}</RunText>
        </span>
      </span>
      <span className="cell t2" role="cell">
        <span className="ell">{run.model === null ? <Unknown /> : <RunText>{run.model}</RunText>}</span>
      </span>
      <span className="cell" role="cell">
        <Status status={run.status}>
          {run.status === 'running' ? t('runs.running', { n: run.steps }) : t(`status.${run.status}`)}
        </Status>
      </span>
      <span className="cell" role="cell">
        <CoverageTag coverage={run.coverage} />
      </span>
      <span className="cell r" role="cell">
        <Count value={run.steps} />
      </span>
      <span className="cell answers" role="cell">
        <Answers run={run} />
      </span>
      <span className="cell r" role="cell">
        <Count value={run.total_input_tokens} />
      </span>
      <span className="cell r" role="cell">
        <Count value={run.total_output_tokens} />
      </span>
      <span className="cell r" role="cell" title={run.cost ?? undefined}>
        {money(run.cost) ?? <Unknown />}
        {run.cost !== null && !run.cost_complete && '+'}
      </span>
      <span className="cell r" role="cell">
        {duration(run.seconds, language) ?? <span className="dim">–</span>}
      </span>
      <span className="cell r t2" role="cell" title={run.started_at}>
        {moment(run.started_at, language)}
      </span>
    </>
  );
}

/** The line below the name: id, and what makes it differ. */
function About({ run }: { readonly run: Run }) {
  const { t } = useWords();
  const changed = changedPlaces(run.overrides).map(changed =>
    typeof changed === 'string' ? t(changed) : changed.place,
  );
  return (
    <span className="ell line about">
      <span className="mono">{run.id}</span>
      {run.forked_from_step !== null && (
        <>
          {' · '}
          {t('runs.cut', { step: run.forked_from_step })} · {changed.join(', ') || t('runs.noOverride')}
        </>
      )}
      {run.children > 0 && <> · {t('runs.forked', { n: run.children })}</>}
    </span>
  );
}

const SHOWN = ['cassette', 'live', 'stub', 'sandbox', 'human', 'simulated', 'miss'] as const;

/** Who answered the tools of a fork's new part; a dash for a run that is no fork. */
function Answers({ run }: { readonly run: Run }) {
  if (run.parent_run_id === null) return <span className="dim">–</span>;
  const counted = SHOWN.filter(source => run.counts[source] > 0);
  if (counted.length === 0) return <span className="dim">–</span>;
  return counted.map(source => <SourceCount key={source} source={source} n={run.counts[source]} />);
}

/** The line of descent beside the name: a ring for a run of its own, a branch for a fork. */
function Branch({ fork, line }: { readonly fork: boolean; readonly line: Line }) {
  const middle = fork ? 18 : 14;
  return (
    <svg width={fork ? 28 : 20} height="36" aria-hidden="true" className="branch">
      {line.above && <path d={`M8 0v${middle}`} stroke="var(--kept-bar)" strokeWidth="3" strokeDasharray="1.5 2" />}
      {line.below && <path d={`M8 36v-${middle}`} stroke="var(--kept-bar)" strokeWidth="3" strokeDasharray="1.5 2" />}
      {fork ? (
        <>
          <path d="M8 18h13" stroke="var(--accent)" strokeWidth="2" />
          <circle cx="22" cy="18" r="3.5" fill="var(--accent)" />
        </>
      ) : (
        <circle cx="8" cy="18" r="3.5" fill="none" stroke="var(--text-2)" strokeWidth="1.5" />
      )}
    </svg>
  );
}
