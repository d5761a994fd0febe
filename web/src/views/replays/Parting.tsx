import type { ReportDetail } from '../../api/types';
import { jsonText } from '../../base/json';
import { useWords } from '../../base/words';
import { type PlaceChange, wordsApart } from '../../model/diff';
import type { Divergence, ReplayReport, Side } from '../../model/report';
import { Words } from '../../widgets/diff';
import { Icon } from '../../widgets/Icon';
import { Kind, type KindName } from '../../widgets/tags';
import { Copy, RunText, Said } from '../../widgets/text';
import { kindOf } from './Tape';

interface PartingProps {
  readonly report: ReplayReport;
  readonly source: ReportDetail['source'];
}

/** The first divergence with both sides, its likely cause, and the line that made it. */
export function Parting({ report, source }: PartingProps) {
  const { t } = useWords();
  const { divergence, message } = report;
  return (
    <div className="stack">
      {!divergence && !message && (
        <section className="box pad">
          <p>
            <b>{t(report.verdict === 'reached' ? 'report.reachedSay' : 'report.passSay')}</b>
          </p>
          <p className="t2">{t('report.passMeans')}</p>
        </section>
      )}
      {message && (
        <section className="box pad">
          <p>
            <Said>{message}</Said>
          </p>
        </section>
      )}
      {divergence && <Sides divergence={divergence} />}
      {divergence && <Cause divergence={divergence} />}
      {divergence?.caller && (
        <section className="box pad">
          <div className="row">
            <b>{t('report.madeAt')}</b>
            <span className="mono ell">
              <RunText>{`${divergence.caller.file}:${divergence.caller.line}`}</RunText>
            </span>
            <span className="grow" />
            <Copy text={`${divergence.caller.file}:${divergence.caller.line}`} />
          </div>
          {source && <Source lines={source} hit={divergence.caller.line} />}
        </section>
      )}
      {report.expected_differences.length > 0 && <Meant differences={report.expected_differences} />}
    </div>
  );
}

/** The code around the line that made the call, as its file stands now. */
function Source({ lines, hit }: { readonly lines: NonNullable<ReportDetail['source']>; readonly hit: number }) {
  const { t } = useWords();
  return (
    <>
      <section className="src" aria-label={t('report.code')}>
        {lines.map(({ number, text }) => (
          <div key={number} className={number === hit ? 'hit' : undefined}>
            <span>{number}</span>
            <span>
              <RunText>{text}</RunText>
            </span>
          </div>
        ))}
      </section>
      <p className="note">{t('report.codeSay')}</p>
    </>
  );
}

function Sides({ divergence }: { readonly divergence: Divergence }) {
  const { t } = useWords();
  const { expected, actual, changes } = divergence;
  const place = divergence.lane === null ? null : t('report.lane', { lane: divergence.lane, n: divergence.n ?? 0 });
  return (
    <section className="box">
      {(expected || actual) && (
        <div className="sides">
          <OneSide label={t('report.expected')} side={expected} place={place} absent={t('report.nothingMore')} />
          <OneSide label={t('report.actual')} side={actual} place={place} absent={t('report.noCall')} now />
        </div>
      )}
      {divergence.message && (
        <p className="t2 said">
          <Said>{divergence.message}</Said>
        </p>
      )}
      {changes.length > 0 && (
        <table className="jd">
          <thead>
            <tr>
              <th scope="col" className="path">
                {t('report.paths', { n: changes.length })}
              </th>
              <th scope="col">{t('report.col.expected')}</th>
              <th scope="col">{t('report.col.actual')}</th>
            </tr>
          </thead>
          <tbody>
            {changes.map(change => (
              <Changed key={`${change.path} ${change.change}`} change={change} />
            ))}
          </tbody>
        </table>
      )}
      {divergence.more_changes && <p className="note said">{t('report.more')}</p>}
    </section>
  );
}

interface OneSideProps {
  readonly label: string;
  readonly side: Side | null;
  readonly place: string | null;
  readonly absent: string;
  readonly now?: boolean;
}

const KIND_NAMES: readonly string[] = [
  'llm',
  'tool',
  'agent',
  'retrieval',
  'clock',
  'random',
  'id',
  'env',
  'state',
  'check',
];

function OneSide({ label, side, place, absent, now = false }: OneSideProps) {
  const { t } = useWords();
  if (!side) {
    return (
      <div className="hatch">
        <span className={now ? 'lbl new' : 'lbl'}>{label}</span>
        <p>
          <b>{absent}</b>
        </p>
      </div>
    );
  }
  const kind = (KIND_NAMES.includes(side.kind) ? side.kind : 'other') as KindName;
  return (
    <div>
      <span className={now ? 'lbl new' : 'lbl'}>{label}</span>
      <div className="row">
        <Kind kind={kind} />
        <b>
          <RunText>{side.type ?? side.kind}</RunText>
        </b>
        <span className="mono ell">
          <RunText>{side.name}</RunText>
        </span>
      </div>
      <div className="dim mono">
        {[side.digest && `${t('report.input')} ${side.digest.slice(0, 12)}`, place].filter(Boolean).join(' · ')}
      </div>
    </div>
  );
}

/** A place with both values: words that went are struck through, words that came are underlined. */
function Changed({ change }: { readonly change: PlaceChange }) {
  const { expected, actual } = change;
  const both = 'expected' in change && 'actual' in change;
  const words =
    both && typeof expected === 'string' && typeof actual === 'string' ? wordsApart(expected, actual) : null;
  return (
    <tr>
      <td>
        <RunText>{change.path || '$'}</RunText>
      </td>
      <td>
        {words ? (
          <Words words={words.filter(([op]) => op !== '+')} />
        ) : (
          'expected' in change && <Gone value={expected} />
        )}
      </td>
      <td>
        {words ? <Words words={words.filter(([op]) => op !== '-')} /> : 'actual' in change && <Came value={actual} />}
      </td>
    </tr>
  );
}

function Gone({ value }: { readonly value: unknown }) {
  return (
    <del>
      <RunText>{jsonText(value)}</RunText>
    </del>
  );
}

function Came({ value }: { readonly value: unknown }) {
  return (
    <ins>
      <RunText>{jsonText(value)}</RunText>
    </ins>
  );
}

function Cause({ divergence }: { readonly divergence: Divergence }) {
  const { t } = useWords();
  const { hints, suggestion } = divergence;
  if (hints.length === 0 && !suggestion) return null;
  return (
    <section className="box pad">
      {hints.length > 0 && (
        <div className="row top">
          <Icon sign="info" />
          <div>
            <b>{t('report.cause')}</b>
            {hints.map(hint => (
              <p key={hint} className="t2">
                <Said>{hint}</Said>
              </p>
            ))}
          </div>
        </div>
      )}
      {suggestion && (
        <p>
          <b>{t('report.wayOut')}</b>{' '}
          <span className="t2">
            <Said>{suggestion}</Said>
          </span>
        </p>
      )}
    </section>
  );
}

/** Differences that were meant, and appeared. */
function Meant({ differences }: { readonly differences: readonly Divergence[] }) {
  const { t } = useWords();
  return (
    <section className="box pad">
      <h2 className="h3">{t('report.meant')}</h2>
      <ul>
        {differences.map(one => (
          <li key={`${one.sequence} ${one.lane} ${one.n}`}>
            {t('report.event', { first: one.sequence ?? t('state.unknown') })}: {t(kindOf(one.kind))}
          </li>
        ))}
      </ul>
    </section>
  );
}
