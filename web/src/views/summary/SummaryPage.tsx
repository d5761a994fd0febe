import './summary.css';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { address, get } from '../../api/client';
import type { Summary, SummaryRow } from '../../api/types';
import { dollars, duration, shortId } from '../../base/format';
import { jsonText } from '../../base/json';
import { type Hint, useKeys } from '../../base/keys';
import { useWords } from '../../base/words';
import { armOf, arms } from '../../model/arms';
import { FindRuns, Foot } from '../../widgets/slots';
import { Failure, Loading, Strip } from '../../widgets/states';
import { SourceCount, Status } from '../../widgets/tags';
import { Count, RunText, Unknown } from '../../widgets/text';
import { PathTree } from './PathTree';

const route = getRouteApi('/summary');
const HINTS: readonly Hint[] = [
  { keys: ['c'], does: 'key.compare' },
  { keys: ['?'], does: 'key.all' },
];

/** Several runs together: do they say the same, and where did their roads part. */
export function SummaryPage() {
  const { t } = useWords();
  const runs = route.useSearch().run ?? [];
  const navigate = route.useNavigate();
  const found = useQuery({
    queryKey: ['summary', runs],
    queryFn: ({ signal }) => get<Summary>(address('/api/summary', { run: runs }), signal),
    enabled: runs.length > 0,
  });
  useKeys({
    c: () => {
      const [a, b] = runs;
      if (a && b) void navigate({ to: '/compare', search: { a, b } });
    },
  });
  return (
    <main className="page">
      <FindRuns />
      {!found.data && <h1 className="vh">{t('summary.title', { n: runs.length })}</h1>}
      {runs.length === 0 && <p className="state">{t('summary.choose')}</p>}
      {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
      {runs.length > 0 && found.isPending && <Loading what={t('summary.title', { n: runs.length })} rows={10} />}
      {found.data && <Shown summary={found.data} />}
      <Foot hints={HINTS} />
    </main>
  );
}

function Shown({ summary }: { readonly summary: Summary }) {
  const { t } = useWords();
  const n = summary.runs.length;
  const agreeing = Math.round(summary.agreement * n);
  const hypothetical = summary.runs.filter(run => run.hypothetical_from !== null);
  return (
    <>
      <div className="hd">
        <div className="row">
          <h1>{t('summary.title', { n })}</h1>
          <span className="dim">{t('summary.groups', { n: summary.groups })}</span>
        </div>
      </div>
      {hypothetical.length > 0 && (
        <Strip>
          <b>{t('run.moreRuns', { n: hypothetical.length, total: n })}</b>{' '}
          {t('run.hypothetical', { step: Math.min(...hypothetical.map(run => run.hypothetical_from ?? 0)) })}
        </Strip>
      )}
      <section className="verdict one">
        <div>
          <p className="vline">
            {agreeing > 1 ? t('summary.agreement', { a: agreeing, n }) : t('summary.allDiffer', { n })}
          </p>
          <p className="t2">{t('summary.noVerdict')}</p>
        </div>
      </section>
      <PathTree summary={summary} />
      <Table summary={summary} />
    </>
  );
}

function Table({ summary }: { readonly summary: Summary }) {
  const { t } = useWords();
  return (
    <table className="tbl d tblwrap">
      <thead>
        <tr>
          <th scope="col">{t('summary.arm')}</th>
          <th scope="col">{t('runs.col.status')}</th>
          <th scope="col" className="r">
            {t('runs.col.steps')}
          </th>
          <th scope="col">{t('runs.col.answers')}</th>
          <th scope="col" className="r">
            {t('runs.col.cost')}
          </th>
          <th scope="col" className="r">
            {t('runs.col.time')}
          </th>
          <th scope="col">{t('compare.answer')}</th>
        </tr>
      </thead>
      {arms(summary.runs).map(([arm, members]) => (
        <tbody key={arm}>
          <tr className="arm">
            <td colSpan={7}>
              <i className={`sw arm-${arm}`} /> {t(`summary.${arm}`)} {members.length}
            </td>
          </tr>
          {members.map(run => (
            <Row key={run.id} run={run} />
          ))}
        </tbody>
      ))}
    </table>
  );
}

const COUNTED = ['cassette', 'live', 'stub', 'sandbox', 'human', 'simulated', 'miss'] as const;

function Row({ run }: { readonly run: SummaryRow }) {
  const { t, language } = useWords();
  const { cost, seconds, steps } = run.figures;
  const answer = run.answer === null ? null : typeof run.answer === 'string' ? run.answer : jsonText(run.answer);
  return (
    <tr>
      <td>
        <Link to="/runs/$id" params={{ id: run.id }} search={{}}>
          <RunText>{run.name}</RunText>
        </Link>{' '}
        <span className="mono dim">{shortId(run.id)}</span>
      </td>
      <td>
        <Status status={run.status} />
        {run.hypothetical_from !== null && (
          <span className="dim"> {t('run.hypothetical', { step: run.hypothetical_from })}</span>
        )}
      </td>
      <td className="r">
        <Count value={Number(steps ?? run.steps)} />
      </td>
      <td>
        <span className="row counts">
          {armOf(run) === 'observed'
            ? '–'
            : COUNTED.filter(source => run.counts[source] > 0).map(source => (
                <SourceCount key={source} source={source} n={run.counts[source]} />
              ))}
        </span>
      </td>
      <td className="r">{dollars(cost == null ? null : String(cost)) ?? <Unknown />}</td>
      <td className="r">{duration(seconds == null ? null : Number(seconds), language) ?? <Unknown />}</td>
      <td className="answercell">
        <span className="tag">{t('summary.group', { n: String(run.group + 1) })}</span>{' '}
        {answer === null ? <span className="dim">{t('compare.noAnswer')}</span> : <RunText>{answer}</RunText>}
      </td>
    </tr>
  );
}
