import './lineage.css';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { useState } from 'react';
import { get, path } from '../../api/client';
import type { Family } from '../../api/types';
import { dollars, moment, shortId } from '../../base/format';
import { type Hint, useKeys } from '../../base/keys';
import { useWords } from '../../base/words';
import { descent, type Relative } from '../../model/family';
import { changedPlaces } from '../../model/overrides';
import { FindRuns, Foot } from '../../widgets/slots';
import { Failure, Loading } from '../../widgets/states';
import { Status, Tag } from '../../widgets/tags';
import { Count, RunText, Unknown } from '../../widgets/text';

const route = getRouteApi('/lineage');
const HINTS: readonly Hint[] = [
  { keys: ['j', 'k'], does: 'key.move' },
  { keys: ['Enter'], does: 'key.open' },
  { keys: ['c'], does: 'key.compare' },
  { keys: ['?'], does: 'key.all' },
];

/** The whole family of a run, from the first run to the last fork. */
export function LineagePage() {
  const { t } = useWords();
  const { run } = route.useSearch();
  const found = useQuery({
    queryKey: ['lineage', run],
    queryFn: ({ signal }) => get<Family>(path`/api/runs/${run ?? ''}/lineage`, signal),
    enabled: run !== undefined,
  });
  return (
    <main className="page">
      <FindRuns />
      {!found.data && <h1 className="vh">{t('lineage.title')}</h1>}
      {run === undefined && (
        <div className="state">
          <p>{t('lineage.choose')}</p>
          <Link to="/runs" search={{ forks: '1' }} className="btn">
            {t('runs.filter.forks')}
          </Link>
        </div>
      )}
      {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
      {run !== undefined && found.isPending && <Loading what={t('lineage.title')} rows={8} />}
      {found.data && run !== undefined && <Graph family={found.data} mine={run} />}
      <Foot hints={HINTS} />
    </main>
  );
}

function Graph({ family, mine }: { readonly family: Family; readonly mine: string }) {
  const { t } = useWords();
  const navigate = route.useNavigate();
  const rows = descent(family);
  const [current, setCurrent] = useState(
    Math.max(
      0,
      rows.findIndex(row => row.run.id === mine),
    ),
  );
  const move = (by: number) => setCurrent(at => Math.max(0, Math.min(rows.length - 1, at + by)));
  const run = rows[current]?.run;
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    Enter: () => run && void navigate({ to: '/runs/$id', params: { id: run.id }, search: {} }),
    c: () => run && run.id !== mine && void navigate({ to: '/compare', search: { a: mine, b: run.id } }),
  });
  return (
    <>
      <div className="hd">
        <div className="row">
          <h1>{t('lineage.title')}</h1>
          <span className="dim">
            {t('lineage.of', { n: rows.length })}
            {family.capped && '+'}
          </span>
        </div>
      </div>
      <table className="tbl tblwrap family">
        <tbody>
          {rows.map((row, at) => (
            <tr key={row.run.id} className={`${row.run.id === mine ? 'sel' : ''} ${at === current ? 'cur' : ''}`}>
              <Cells row={row} mine={row.run.id === mine} />
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

const STEP = 22;

function Cells({ row, mine }: { readonly row: Relative; readonly mine: boolean }) {
  const { t, language } = useWords();
  const { run, edge } = row;
  const changed = edge
    ? changedPlaces(edge.overrides).map(place => (typeof place === 'string' ? t(place) : place.place))
    : [];
  return (
    <>
      <td>
        <div className="row">
          <Line row={row} />
          <Link to="/runs/$id" params={{ id: run.id }} search={{}} aria-current={mine ? 'page' : undefined}>
            <RunText>{run.name}</RunText>
          </Link>
          <span className="mono dim">{shortId(run.id)}</span>
        </div>
      </td>
      <td>
        {edge && (
          <span className="row cutcell">
            <Tag look="new" sign="fork">
              {t('runs.cut', { step: edge.step ?? 0 })}
            </Tag>
            <span className="t2">{changed.join(', ') || t('runs.noOverride')}</span>
          </span>
        )}
      </td>
      <td className="t2">{run.arm === 'control' || run.arm === 'candidate' ? t(`summary.${run.arm}`) : ''}</td>
      <td>
        <Status status={run.status} />
      </td>
      <td className="r">
        <Count value={run.steps} />
      </td>
      <td>
        {run.misses > 0 && (
          <Tag look="miss" sign="miss">
            {t('source.misses', { n: run.misses })}
          </Tag>
        )}
      </td>
      <td className="r">{dollars(run.cost) ?? <Unknown />}</td>
      <td className="r t2">{moment(run.started_at, language)}</td>
    </>
  );
}

/** The lines of descent left of a run: grey for what goes on below, the accent where it branches off. */
function Line({ row }: { readonly row: Relative }) {
  const x = row.depth * STEP + 8;
  return (
    <svg width={x + 12} height="36" aria-hidden="true" className="branch">
      {row.through.map(depth => (
        <path
          key={depth}
          d={`M${depth * STEP + 8} 0v36`}
          stroke="var(--kept-bar)"
          strokeWidth="3"
          strokeDasharray="1.5 2"
        />
      ))}
      {row.depth > 0 && (
        <>
          <path d={`M${x - STEP} 0v18`} stroke="var(--kept-bar)" strokeWidth="3" strokeDasharray="1.5 2" />
          <path
            d={`M${x - STEP} 18h${STEP - 4}`}
            stroke={row.run.arm === 'control' ? 'var(--text-3)' : 'var(--accent)'}
            strokeWidth="2"
          />
        </>
      )}
      {row.parent && <path d={`M${x} 22v14`} stroke="var(--kept-bar)" strokeWidth="3" strokeDasharray="1.5 2" />}
      <circle
        cx={x}
        cy="18"
        r="3.5"
        fill={row.depth === 0 ? 'var(--surface)' : row.run.arm === 'control' ? 'var(--text-3)' : 'var(--accent)'}
        stroke={row.depth === 0 ? 'var(--text-2)' : 'none'}
        strokeWidth="1.5"
      />
    </svg>
  );
}
