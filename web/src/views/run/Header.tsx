import { Link } from '@tanstack/react-router';
import { path } from '../../api/client';
import type { RunDetail } from '../../api/types';
import { dollars, duration } from '../../base/format';
import { useWords } from '../../base/words';
import { changedPlaces } from '../../model/overrides';
import { Menu } from '../../widgets/controls';
import { Icon } from '../../widgets/Icon';
import { SourceCount, Tag } from '../../widgets/tags';
import { Copy, Count, RunText, Unknown } from '../../widgets/text';
import { Badges } from './Badges';

/** Name, badges, lineage and totals of a run. */
export function Header({ run, onEvidence }: { readonly run: RunDetail; readonly onEvidence: () => void }) {
  const { t } = useWords();
  return (
    <section className="hd" aria-label={run.name}>
      <div className="row">
        <span className="crumb ell">
          <Link to="/runs" search={{}}>
            {t('run.crumb')}
          </Link>
          {' / '}
          <Link to="/runs" search={{ agent: run.agent }}>
            <RunText>{run.agent}</RunText>
          </Link>
          {' /'}
        </span>
        <h1 className="ell">
          <RunText>{run.name}</RunText>
        </h1>
        <span className="mono dim nw hide-n">{run.id}</span>
        <Copy text={run.id} label={t('state.copyId')} />
        <span className="grow" />
        <Link to="/replays" search={{ run: run.id }} className="btn s q">
          {t('run.replay')}
        </Link>
        {!run.erased && run.engine !== 'imported' && (
          <Link to="/runs/$id/fork" params={{ id: run.id }} search={{ from: 'start' }} className="btn s q">
            {t('run.again')}
          </Link>
        )}
        <Link to="/lineage" search={{ run: run.id }} className="btn s q">
          {t('lineage.show')}
        </Link>
        <Menu label={t('run.export')} className="btn s q">
          <a className="item" role="menuitem" href={path`/api/runs/${run.id}/export?format=loupe`} download>
            {t('run.exportLoupe')}
          </a>
          <a className="item" role="menuitem" href={path`/api/runs/${run.id}/export?format=jsonl`} download>
            {t('run.exportJsonl')}
          </a>
        </Menu>
        {run.parent_run_id && (
          <Link to="/compare" search={{ a: run.parent_run_id, b: run.id }} className="btn s">
            {t('run.comparePar')}
          </Link>
        )}
      </div>
      <div className="row badges">
        <Badges run={run} onEvidence={onEvidence} />
        <Descent run={run} />
      </div>
      <div className="row totals">
        <Totals run={run} />
        <span className="grow" />
        <Answers run={run} />
      </div>
    </section>
  );
}

/** Where the run comes from, and what came of it. */
function Descent({ run }: { readonly run: RunDetail }) {
  const { t } = useWords();
  const parent = run.lineage.ancestors[0];
  const changed = changedPlaces(run.overrides).map(place => (typeof place === 'string' ? t(place) : place.place));
  const siblings = run.lineage.siblings.total;
  return (
    <span className="t2 nw descent">
      {run.parent_run_id && (
        <>
          <Icon sign="fork" />
          <span>
            {t('run.forkedFrom')}{' '}
            <Link
              to="/runs/$id"
              params={{ id: run.parent_run_id }}
              search={{}}
              className="mono"
              title={run.parent_run_id}
            >
              <RunText>{parent ? parent.name : run.parent_run_id}</RunText>
            </Link>{' '}
            {t('run.atStep', { step: run.forked_from_step ?? 0 })}
          </span>
          <span className="dim">·</span>
          <span>
            {changed.length
              ? t('override.count', { n: changed.length, what: changed.join(', ') })
              : t(answeredOtherwise(run) ? 'run.onlyPolicy' : 'runs.noOverride')}
          </span>
          {siblings > 0 && (
            <span className="hide-n">
              <span className="dim">· </span>
              <Link to="/summary" search={{ run: familyOf(run) }}>
                {t('run.family', { n: siblings })}
              </Link>
            </span>
          )}
          <span className="dim hide-n">·</span>
        </>
      )}
      <span className="dim hide-n">{run.children ? t('run.forks', { n: run.children }) : t('run.notForked')}</span>
    </span>
  );
}

/** Whether a fork let others answer tools than the recording, though it changed nothing in a request. */
function answeredOtherwise(run: RunDetail): boolean {
  const { live, stub, sandbox, human, simulated } = run.counts;
  return live + stub + sandbox + human + simulated > 0;
}

/** The observed run and all forks of the same step, as far as they are listed. */
function familyOf(run: RunDetail): readonly string[] {
  const parent = run.parent_run_id === null ? [] : [run.parent_run_id];
  return [...parent, run.id, ...run.lineage.siblings.items.map(one => one.id)].slice(0, 50);
}

function Totals({ run }: { readonly run: RunDetail }) {
  const { t, language } = useWords();
  return (
    <>
      <span>
        {t('run.total.steps')}{' '}
        <b>
          <Count value={run.steps} />
        </b>
      </span>
      <span>
        {t('run.total.in')}{' '}
        <b>
          <Count value={run.total_input_tokens} />
          {run.usage_complete || run.total_input_tokens === null ? '' : '+'}
        </b>
      </span>
      <span>
        {t('run.total.out')}{' '}
        <b>
          <Count value={run.total_output_tokens} />
        </b>
      </span>
      <span>
        {t('run.total.time')}{' '}
        <b>{duration(run.seconds, language) ?? (run.status === 'interrupted' ? <Unknown /> : t('run.stillRunning'))}</b>
      </span>
      <span title={run.cost ?? undefined}>
        {t('run.total.cost')}{' '}
        <b>
          {run.cost !== null && !run.cost_complete
            ? t('run.atLeast', { cost: dollars(run.cost) ?? '' })
            : (dollars(run.cost) ?? <Unknown />)}
        </b>
      </span>
      {run.parent_run_id && run.new_cost !== null && (
        <span title={run.new_cost}>
          {t('run.total.new')} <b>{dollars(run.new_cost)}</b>
        </span>
      )}
    </>
  );
}

const COUNTED = ['cassette', 'live', 'stub', 'sandbox', 'human', 'simulated', 'miss'] as const;

function Answers({ run }: { readonly run: RunDetail }) {
  const { t } = useWords();
  const counted = COUNTED.filter(source => run.counts[source] > 0);
  if (run.parent_run_id === null || counted.length === 0) return null;
  return (
    <span className="row answered">
      <span className="hide-n">{t('run.answers')}</span>
      {counted.map(source => (
        <SourceCount key={source} source={source} n={run.counts[source]} worded />
      ))}
      {run.counts.reused > 0 && <Tag>{t('source.reused', { n: run.counts.reused })}</Tag>}
    </span>
  );
}
