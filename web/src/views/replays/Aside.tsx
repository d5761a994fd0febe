import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { address, get, path } from '../../api/client';
import type { EventPage, RunDetail } from '../../api/types';
import { useWords } from '../../base/words';
import { fates, LEVELS, type Level, type ReplayReport, recordedWith } from '../../model/report';
import { Icon, type Sign } from '../../widgets/Icon';
import { CoverageTag } from '../../widgets/tags';
import { AllSaid, Command, Count, RunText, Said, Unknown } from '../../widgets/text';

interface AsideProps {
  readonly report: ReplayReport;
  readonly command: string;
}

/** What is beside the divergence: near calls, the last that agreed, what was judged and what was not. */
export function Aside({ report, command }: AsideProps) {
  const { t } = useWords();
  return (
    <aside className="stack">
      <Near report={report} />
      <LastAgreed report={report} />
      <Judged report={report} />
      <LeftOver report={report} />
      <Patched marks={Object.entries(report.patched ?? {})} />
      <RecordedWith run={report.run_id} />
      {report.notes.length > 0 && (
        <Part title={t('report.notes')}>
          <ul className="know">
            {report.notes.map(note => (
              <Known key={note} sign="info">
                <Said>{note}</Said>
              </Known>
            ))}
          </ul>
        </Part>
      )}
      <Part title={t('report.yourself')}>
        <Command>{command}</Command>
      </Part>
    </aside>
  );
}

function Part({ title, children }: { readonly title: string; readonly children: ReactNode }) {
  return (
    <section className="box pad">
      <h2 className="h3">{title}</h2>
      {children}
    </section>
  );
}

function Near({ report }: { readonly report: ReplayReport }) {
  const { t } = useWords();
  const near = report.divergence?.candidates ?? [];
  if (near.length === 0) return null;
  return (
    <Part title={t('report.near')}>
      {near.map(one => (
        <dl key={one.sequence} className="kv">
          <dt>{t('report.atEvent')}</dt>
          <dd>
            {one.sequence},{' '}
            <span className="mono">
              <RunText>{`${one.kind} ${one.name}`}</RunText>
            </span>
          </dd>
          <dt>{t('report.rejected')}</dt>
          <dd>
            <Said>{one.rejected}</Said>
          </dd>
        </dl>
      ))}
      <p className="note">{t('report.neverNear')}</p>
    </Part>
  );
}

function LastAgreed({ report }: { readonly report: ReplayReport }) {
  const { t } = useWords();
  const last = report.divergence?.last_agreeing;
  if (!last) return null;
  const step = report.divergence?.step ?? null;
  return (
    <Part title={t('report.lastAgreed')}>
      <p>
        {t('report.event', { first: last.sequence })},{' '}
        <span className="mono">
          <b>{last.type}</b> <RunText>{last.name}</RunText>
        </span>
      </p>
      {step !== null && (
        <p className="note">
          <Link to="/runs/$id" params={{ id: report.run_id }} search={{ step }}>
            {t('report.openStep', { step })}
          </Link>
        </p>
      )}
    </Part>
  );
}

const LOOKS: Readonly<Record<'yes' | 'no' | 'not', Sign>> = { yes: 'check', no: 'error', not: 'info' };

function Judged({ report }: { readonly report: ReplayReport }) {
  const { t } = useWords();
  const fate = (level: Level) => {
    const found = report.levels[level];
    return found === null ? 'not' : found ? 'yes' : 'no';
  };
  const asked = LEVELS.slice(0, LEVELS.indexOf(report.level) + 1);
  return (
    <Part title={t('report.judged')}>
      <ul className="know">
        {asked.map(level => (
          <Known key={level} sign={LOOKS[fate(level)]} bad={fate(level) === 'no'}>
            {t(`report.level.${level}`)}: {t(`report.fate.${fate(level)}`)}
          </Known>
        ))}
        <Known sign="info">{t('report.seen', { n: report.consumed, total: report.events })}</Known>
        <Known sign="lock">{t('report.nothingRun')}</Known>
        {report.not_covered.map(what => (
          <Known key={what} sign="info">
            {t('report.notObserved')} <Said>{what}</Said>
          </Known>
        ))}
      </ul>
    </Part>
  );
}

const FEW = 3;

/** The first recorded events behind the divergence that the replay did not come to. */
function LeftOver({ report }: { readonly report: ReplayReport }) {
  const { t } = useWords();
  const { left } = fates(report);
  const at = (report.divergence?.sequence ?? report.events) + 1;
  const found = useQuery({
    queryKey: ['events', report.run_id, 'left', at],
    queryFn: ({ signal }) =>
      get<EventPage>(address(path`/api/runs/${report.run_id}/events`, { at, limit: FEW }), signal),
    enabled: left > 0,
  });
  if (left === 0 || !found.data) return null;
  return (
    <Part title={t('report.leftOver', { n: left })}>
      <table className="ev">
        <tbody>
          {found.data.items.map(event => (
            <tr key={event.sequence}>
              <td className="r">
                <Link to="/runs/$id/events" params={{ id: report.run_id }} search={{ event: event.sequence }}>
                  {event.sequence}
                </Link>
              </td>
              <td>{event.type}</td>
              <td className="dim">
                <RunText>{event.name ?? ''}</RunText>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Part>
  );
}

/** Marks of deliberate changes that the code asked for, and which way it went. */
function Patched({ marks }: { readonly marks: readonly (readonly [string, boolean])[] }) {
  const { t } = useWords();
  if (marks.length === 0) return null;
  return (
    <Part title={t('report.patched')}>
      <ul className="know">
        {marks.map(([name, has]) => (
          <Known key={name} sign={has ? 'check' : 'info'}>
            <RunText>{t(has ? 'report.patched.yes' : 'report.patched.no', { name })}</RunText>
          </Known>
        ))}
      </ul>
    </Part>
  );
}

/** What the recording covers, and what it was made with; a replay with anything else may part for that. */
function RecordedWith({ run }: { readonly run: string }) {
  const { t } = useWords();
  const found = useQuery({
    queryKey: ['run', run],
    queryFn: ({ signal }) => get<RunDetail>(path`/api/runs/${run}`, signal),
  });
  if (!found.data) return null;
  const made = recordedWith(found.data.snapshot);
  return (
    <Part title={t('report.recordedWith')}>
      <dl className="kv">
        <dt>{t('run.coverage')}</dt>
        <dd>
          <CoverageTag coverage={found.data.coverage} /> <AllSaid texts={found.data.coverage_notes} />
        </dd>
        <dt>Python</dt>
        <dd>{made?.python ?? <Unknown />}</dd>
        <dt>{t('report.commit')}</dt>
        <dd className="mono">
          {made?.commit ?? <Unknown />} {made?.changed && t('report.uncommitted')}
        </dd>
        <dt>{t('report.packages')}</dt>
        <dd>
          <Count value={made?.packages} />
        </dd>
      </dl>
    </Part>
  );
}

interface KnownProps {
  readonly sign: Sign;
  readonly bad?: boolean;
  readonly children: ReactNode;
}

function Known({ sign, bad = false, children }: KnownProps) {
  return (
    <li>
      <span className={bad ? 'bad' : 'dim'}>
        <Icon sign={sign} />
      </span>
      <span>{children}</span>
    </li>
  );
}
