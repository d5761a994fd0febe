import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { address, get } from '../../api/client';
import type { Report, Reports } from '../../api/types';
import { moment, zone } from '../../base/format';
import { type Hint, useKeys } from '../../base/keys';
import { useWords } from '../../base/words';
import { fates, reportIn } from '../../model/report';
import { Turning } from '../../widgets/controls';
import { FindRuns, Foot } from '../../widgets/slots';
import { Failure, Loading } from '../../widgets/states';
import { RunText, Unknown } from '../../widgets/text';
import { Start } from './Start';
import { VerdictBadge } from './Verdict';
import './replays.css';

const route = getRouteApi('/replays');
const LIMIT = 50;
const HINTS: readonly Hint[] = [
  { keys: ['n', 'p'], does: 'key.pages' },
  { keys: ['?'], does: 'key.all' },
];

/** Replays that were done from the page, newest first; of one run also where one is started. */
export function ReplaysPage() {
  const { t } = useWords();
  const { run, first = 0 } = route.useSearch();
  const navigate = useNavigate();
  const found = useQuery({
    queryKey: ['reports', run ?? null, first],
    queryFn: ({ signal }) => get<Reports>(address('/api/reports', { run, first, limit: LIMIT }), signal),
    placeholderData: (before, query) => (query?.queryKey[1] === (run ?? null) ? before : undefined),
  });
  const items = found.data?.items;
  const total = found.data?.total ?? 0;
  const turn = (to: number) => {
    if (to >= 0 && to < total) void navigate({ to: '/replays', search: { ...(run ? { run } : {}), first: to } });
  };
  useKeys({ n: () => turn(first + LIMIT), p: () => turn(Math.max(0, first - LIMIT)) });
  return (
    <main className="page">
      <FindRuns />
      <div className="hd">
        <div className="row">
          <h1>{t('replay.title')}</h1>
          {run && (
            <>
              <span className="dim">{t('report.of')}</span>
              <Link to="/runs/$id" params={{ id: run }} search={{}} className="mono ell">
                {run}
              </Link>
              <Link to="/replays" search={{}} className="btn s q">
                {t('report.all')}
              </Link>
            </>
          )}
          <span className="grow" />
          {total > LIMIT && <Turning first={first} size={LIMIT} total={total} onTurn={turn} />}
        </div>
      </div>
      {run && <Start key={run} id={run} />}
      {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
      {found.isPending && <Loading what={t('replay.title')} />}
      {items?.length === 0 && (
        <div className="state">
          <p>
            <b>{t('replay.none')}</b>
          </p>
          <p className="t2">{t(run ? 'report.noneRun' : 'report.noneSay')}</p>
        </div>
      )}
      {items && items.length > 0 && <Table items={items} />}
      <Foot hints={run ? [{ keys: ['r'], does: 'key.replay' }, ...HINTS] : HINTS}>
        <span>{t('report.foot')}</span>
      </Foot>
    </main>
  );
}

function Table({ items }: { readonly items: readonly Report[] }) {
  const { t, language } = useWords();
  return (
    <table className="tbl tblwrap" aria-label={t('replay.title')}>
      <thead>
        <tr>
          <th scope="col">{t('report.col.verdict')}</th>
          <th scope="col">{t('runs.col.run')}</th>
          <th scope="col">{t('report.col.level')}</th>
          <th scope="col" className="r">
            {t('report.col.agreed')}
          </th>
          <th scope="col">{t('report.col.where')}</th>
          <th scope="col">
            {t('report.col.at')} {zone(language)}
          </th>
        </tr>
      </thead>
      <tbody>
        {items.map(item => (
          <Row key={item.id} item={item} />
        ))}
      </tbody>
    </table>
  );
}

function Row({ item }: { readonly item: Report }) {
  const { t, language } = useWords();
  const report = reportIn(item.report);
  const divergence = report?.divergence;
  return (
    <tr>
      <td>
        <Link to="/replays/$id" params={{ id: item.id }}>
          <VerdictBadge report={report} />
        </Link>
      </td>
      <td className="mono">
        <Link to="/runs/$id" params={{ id: item.run_id }} search={{}}>
          {item.run_id}
        </Link>
      </td>
      <td>{report ? t(`report.level.${report.level}`) : <Unknown />}</td>
      <td className="r">
        {report ? t('run.moreRuns', { n: fates(report).agreed, total: report.events }) : <Unknown />}
      </td>
      <td className="ell where">
        {divergence?.caller && <RunText>{`${divergence.caller.file}:${divergence.caller.line}`}</RunText>}
        {!divergence && report?.message && <RunText>{report.message}</RunText>}
      </td>
      <td title={item.at ?? undefined}>{moment(item.at, language) ?? <Unknown />}</td>
    </tr>
  );
}
