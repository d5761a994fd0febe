import './evidence.css';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import type { RunDetail, Verdict } from '../../api/types';
import { moment } from '../../base/format';
import { useWords } from '../../base/words';
import { faultIn, notProven, proven, type Sentence, standing } from '../../model/evidence';
import { VERDICTS } from '../../model/report';
import { Dialog } from '../../widgets/controls';
import { Icon, type Sign } from '../../widgets/Icon';
import { Failure } from '../../widgets/states';
import { CoverageTag } from '../../widgets/tags';
import { AllSaid, Command, Copy } from '../../widgets/text';
import { useEvidence } from './queries';

/** What is proven of a run and what is not, in words: chain, bodies, anchor, replay. It can be checked here and now. */
export function Evidence({ run, onClose }: { readonly run: RunDetail; readonly onClose: () => void }) {
  const { t, language } = useWords();
  const { verdict, checking, error, check } = useEvidence(run);
  const stands = standing(run, verdict, checking);
  const bad = stands === 'damaged' || stands === 'newer';
  return (
    <Dialog title={t('evidence.title')} onClose={onClose}>
      <div className="evidence">
        <div className="row wrap">
          <span className={`st ${bad ? 'error' : ''}`} role="status">
            <Icon sign={bad ? 'error' : stands === 'checking' ? 'run' : stands === 'not_checked' ? 'info' : 'chain'} />
            <b>{t(`evidence.${stands}`)}</b>
          </span>
          {verdict && !checking && (
            <span className="note">
              {t('evidence.checkedAt', { at: moment(verdict.checked_at, language) ?? '', reader: verdict.reader })}
            </span>
          )}
          <span className="grow" />
          <button type="button" className="btn s" data-first disabled={checking} onClick={check}>
            {t(checking ? 'evidence.verifying' : verdict ? 'evidence.again' : 'evidence.verify')}
          </button>
        </div>
        {run.newer !== null && <p className="t2">{run.newer}</p>}
        {error && run.newer === null && <Failure error={error} again={check} />}
        {stands === 'not_checked' && <p className="t2">{t('evidence.notYet')}</p>}
        {verdict?.fault && <FirstBad run={run.id} verdict={verdict} fault={verdict.fault} />}
        {verdict && <Lists verdict={verdict} />}
        <RanOn run={run} />
        <LastReplay run={run} />
        {run.open_effects > 0 && (
          <Part title={t('effects.title')}>
            <p className="row">
              <span className="st error">{t('effects.badge', { n: run.open_effects })}</span>
              <span className="grow" />
              <Link to="/effects" search={{ run: run.id }} className="btn s">
                {t('effects.settle')}
              </Link>
            </p>
          </Part>
        )}
        <Part title={t('evidence.yourself')}>
          <Command>{`agentloupe verify ${run.id}`}</Command>
        </Part>
      </div>
    </Dialog>
  );
}

function Part({ title, children }: { readonly title: string; readonly children: ReactNode }) {
  return (
    <section>
      <h3>{title}</h3>
      {children}
    </section>
  );
}

interface FirstBadProps {
  readonly run: string;
  readonly verdict: Verdict;
  readonly fault: NonNullable<Verdict['fault']>;
}

/** The first record that is not as it was sealed or signed: where, what was expected, what is there. */
function FirstBad({ run, verdict, fault }: FirstBadProps) {
  const { t } = useWords();
  const { word, values } = faultIn(fault);
  return (
    <section className="box pad firstbad">
      <h3>{t('evidence.firstBad')}</h3>
      <p>
        <b>{t(word, values)}</b>
      </p>
      <dl className="kv mono">
        <dt>{t('report.col.expected')}</dt>
        <dd>{fault.expected}</dd>
        <dt>{t('report.col.actual')}</dt>
        <dd>{fault.actual}</dd>
      </dl>
      <div className="row">
        {fault.sequence > 0 && (
          <Link to="/runs/$id/events" params={{ id: run }} search={{ event: fault.sequence }} className="btn s">
            {t('evidence.showEvent', { n: String(fault.sequence) })}
          </Link>
        )}
        {verdict.more.length > 0 && <span className="note">{t('evidence.more', { n: verdict.more.length })}</span>}
        <span className="grow" />
        <Copy text={verdict.head} />
      </div>
    </section>
  );
}

function Lists({ verdict }: { readonly verdict: Verdict }) {
  const { t, language } = useWords();
  const shown = proven(verdict, iso => moment(iso, language) ?? iso);
  return (
    <div className="two">
      <Part title={t('evidence.proven')}>
        <Sentences sentences={shown} sign="check" />
      </Part>
      <Part title={t('evidence.notProven')}>
        <Sentences sentences={notProven(verdict)} sign="info" />
      </Part>
    </div>
  );
}

function Sentences({ sentences, sign }: { readonly sentences: readonly Sentence[]; readonly sign: Sign }) {
  const { t } = useWords();
  return (
    <ul className="know">
      {sentences.map(({ word, values }) => (
        <li key={word}>
          <span className="lead dim">
            <Icon sign={sign} />
          </span>
          <span>{t(word, values)}</span>
        </li>
      ))}
    </ul>
  );
}

/** What the recording covers, and the digest of what it depended on. */
function RanOn({ run }: { readonly run: RunDetail }) {
  const { t } = useWords();
  return (
    <Part title={t('evidence.ranOn')}>
      <dl className="kv">
        <dt>{t('run.coverage')}</dt>
        <dd>
          <CoverageTag coverage={run.coverage} /> <AllSaid texts={run.coverage_notes} />
        </dd>
        <dt>{t('evidence.snapshot')}</dt>
        <dd className="mono digest">
          {run.snapshot_digest ?? <span className="dim">{t('evidence.noSnapshot')}</span>}
        </dd>
      </dl>
    </Part>
  );
}

function LastReplay({ run }: { readonly run: RunDetail }) {
  const { t } = useWords();
  const { replay } = run.badges;
  const verdict = VERDICTS.find(one => one === replay?.['verdict']);
  const job = replay?.['job'];
  return (
    <Part title={t('evidence.replay')}>
      <p className="row">
        <span className={verdict && replay?.['passed'] !== true ? 'st error' : ''}>
          {verdict ? t(`report.verdict.${verdict}`) : t('evidence.noReplay')}
        </span>
        <span className="grow" />
        {typeof job === 'string' ? (
          <Link to="/replays/$id" params={{ id: job }} className="btn s">
            {t('evidence.openReport')}
          </Link>
        ) : (
          <Link to="/replays" search={{ run: run.id }} className="btn s">
            {t('replay.start')}
          </Link>
        )}
      </p>
    </Part>
  );
}
