import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { useWords } from '../../base/words';
import { LEVELS, type Level, type ReplayReport } from '../../model/report';
import { Icon, type Sign } from '../../widgets/Icon';
import { Command, RunText } from '../../widgets/text';

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
      {report.notes.length > 0 && (
        <Part title={t('report.notes')}>
          <ul className="know">
            {report.notes.map(note => (
              <Known key={note} sign="info">
                <RunText>{note}</RunText>
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
            <RunText>{one.rejected}</RunText>
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
        <Known sign="lock">{t('report.nothingRun')}</Known>
        {report.not_covered.map(what => (
          <Known key={what} sign="info">
            {t('report.notObserved')} <RunText>{what}</RunText>
          </Known>
        ))}
      </ul>
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
