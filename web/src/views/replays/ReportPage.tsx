import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { get, path } from '../../api/client';
import type { ReportDetail } from '../../api/types';
import { moment, zone } from '../../base/format';
import { type Hint, useKeys } from '../../base/keys';
import { useWords } from '../../base/words';
import { sentenceIn } from '../../base/words/said';
import { expectedOf } from '../../model/expected';
import { quoted } from '../../model/jobs';
import { type ReplayReport, reportIn } from '../../model/report';
import { FindRuns, Foot } from '../../widgets/slots';
import { Failure, Loading, Strip } from '../../widgets/states';
import { Badge } from '../../widgets/tags';
import { Aside } from './Aside';
import { Meant } from './Meant';
import { Parting } from './Parting';
import { Tape } from './Tape';
import { VerdictBadge } from './Verdict';
import './replays.css';

const route = getRouteApi('/replays/$id');

/** What one replay found: whether today's code asks for what was recorded, and if not, where it first does not. */
export function ReportPage() {
  const { t } = useWords();
  const { id } = route.useParams();
  const found = useQuery({
    queryKey: ['reports', 'one', id],
    queryFn: ({ signal }) => get<ReportDetail>(path`/api/reports/${id}`, signal),
  });
  const report = reportIn(found.data?.report);
  return (
    <main className="page">
      <FindRuns />
      {!found.data && <h1 className="vh">{t('replay.title')}</h1>}
      {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
      {found.isPending && <Loading what={id} rows={10} />}
      {found.data && !report && <p className="state">{t('report.unreadable')}</p>}
      {found.data && report && <Shown stored={found.data} report={report} />}
    </main>
  );
}

function Shown({ stored, report }: { readonly stored: ReportDetail; readonly report: ReplayReport }) {
  const { t } = useWords();
  const navigate = useNavigate();
  const step = report.divergence?.step ?? null;
  const command = `agentloupe replay ${quoted(report.run_id)}`;
  const open = () => {
    void navigate({ to: '/runs/$id', params: { id: report.run_id }, search: step === null ? {} : { step } });
  };
  const meant = expectedOf(report.divergence);
  const [saying, setSaying] = useState(false);
  useKeys({
    o: open,
    e: () => meant && setSaying(true),
    r: () => void navigate({ to: '/replays', search: { run: report.run_id } }),
    y: () => void navigator.clipboard.writeText(command),
  });
  const hints: readonly Hint[] = [
    { keys: ['o'], does: 'key.openStep' },
    ...(meant ? [{ keys: ['e'], does: 'key.expect' } as const] : []),
    { keys: ['r'], does: 'key.replay' },
    { keys: ['y'], does: 'key.copyCommand' },
    { keys: ['?'], does: 'key.all' },
  ];
  return (
    <>
      <Head stored={stored} report={report} onExpect={meant && (() => setSaying(true))} />
      {saying && meant && <Meant run={report.run_id} entry={meant} onClose={() => setSaying(false)} />}
      {report.verdict === 'damaged' && (
        <Strip look="error">
          <b>{t('report.damaged')}</b> {t('report.damagedSay')}
        </Strip>
      )}
      {!report.order_proven && (
        <Strip>
          <b>{t('report.doubt')}</b> {report.unproven.join(' · ')}
        </Strip>
      )}
      <Tape report={report} />
      <div className="report">
        <Parting report={report} source={stored.source} />
        <Aside report={report} command={command} />
      </div>
      <Foot hints={hints}>
        <span>{t('report.foot')}</span>
      </Foot>
    </>
  );
}

interface HeadProps {
  readonly stored: ReportDetail;
  readonly report: ReplayReport;
  readonly onExpect: (() => void) | null;
}

function Head({ stored, report, onExpect }: HeadProps) {
  const { t, language } = useWords();
  return (
    <div className="hd">
      <div className="row">
        <span className="crumb ell">
          <Link to="/replays" search={{}}>
            {t('replay.title')}
          </Link>
          {' / '}
          <Link to="/runs/$id" params={{ id: stored.run_id }} search={{}} className="mono">
            {stored.run_id}
          </Link>
          {' /'}
        </span>
        <h1 className="ell">{t('report.strict')}</h1>
        <VerdictBadge report={report} />
        <span className="grow" />
        <a className="btn s q" href={path`/api/reports/${stored.id}`} download={`${stored.id}.json`}>
          JSON
        </a>
        {onExpect && (
          <button type="button" className="btn s q" onClick={onExpect}>
            {t('report.expect')}
          </button>
        )}
        <Link to="/replays" search={{ run: stored.run_id }} className="btn s">
          {t('report.again')}
        </Link>
      </div>
      <div className="row totals">
        <span>
          {t('report.col.at')}{' '}
          <b>{stored.at ? `${moment(stored.at, language)} ${zone(language)}` : t('state.unknown')}</b>
        </span>
        <span>
          {t('report.col.level')} <b>{t(`report.level.${report.level}`)}</b>
        </span>
        <span>
          {t('report.exit')} <b>{report.exit_code}</b>
        </span>
        <span className="hide-n">
          {t('report.reader')} <b>{report.version}</b>
        </span>
        <span className="grow" />
        <span className="row">
          <Badge sign="lock">
            {t('report.offline')} <b>{sentenceIn(language, report.isolation)}</b>
          </Badge>
          <Badge sign="cassette">
            {t('report.fromTape')} <b>{report.calls}</b>
          </Badge>
          <Badge bad={!report.order_proven}>
            {t('report.order')} <b>{t(report.order_proven ? 'report.proven' : 'report.notProven')}</b>
          </Badge>
        </span>
      </div>
    </div>
  );
}
