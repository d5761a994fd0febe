import type { ComparedHead } from '../../api/types';
import { type Speech, useWords } from '../../base/words';
import { called, depended, sideOf } from '../../model/depended';
import { RunText } from '../../widgets/text';

const SHOWN = 3;

interface DependedProps {
  readonly snapshot: ComparedHead['snapshot'];
  /** How many pairs of calls were made from other prompt templates. */
  readonly templates: number;
}

/** What both runs ran on: the same, not known, or what differs, with the whole list folded beneath. */
export function Depended({ snapshot, templates }: DependedProps) {
  const speech = useWords();
  const { t } = speech;
  const found = depended(snapshot);
  const label = <span className="lbl">{t('compare.ranOn')}</span>;
  if (found.state !== 'changed') {
    return (
      <section className="ranon" aria-label={t('compare.ranOn')}>
        <p className="line">
          {label}{' '}
          <span className={found.state === 'same' ? 't2' : ''}>
            {found.state === 'same' && templates > 0
              ? t('compare.ranOn.templates', { n: templates })
              : t(`compare.ranOn.${found.state}`)}
          </span>
        </p>
      </section>
    );
  }
  const { packages, others } = found;
  const said = [
    ...(packages.length ? [t('compare.ranOn.packages', { n: packages.length, what: listed(packages, speech) })] : []),
    ...(others.length ? [t('compare.ranOn.others', { n: others.length, what: listed(others, speech) })] : []),
  ];
  return (
    <section className="ranon" aria-label={t('compare.ranOn')}>
      <details>
        <summary className="line">
          {label}{' '}
          <b>
            <RunText>{said.join(' · ')}</RunText>
          </b>
        </summary>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by keys */}
        <section className="all" tabIndex={0} aria-label={t('compare.ranOn.all')}>
          <table className="tbl d tblwrap">
            <thead>
              <tr>
                <th scope="col">{t('compare.ranOn.what')}</th>
                <th scope="col">A</th>
                <th scope="col">B</th>
              </tr>
            </thead>
            <tbody>
              {snapshot.changes.map(one => (
                <tr key={one.what}>
                  <td className="mono">
                    <RunText>{called(one.what)}</RunText>
                  </td>
                  <Side value={one.left} />
                  <Side value={one.right} />
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      </details>
    </section>
  );
}

function Side({ value }: { readonly value: unknown }) {
  const { t } = useWords();
  const text = sideOf(value);
  return (
    <td className="mono">
      {text === null ? <span className="dim">{t('compare.none')}</span> : <RunText>{text}</RunText>}
    </td>
  );
}

function listed(names: readonly string[], { t }: Speech): string {
  const more = names.length - SHOWN;
  const shown = names.slice(0, SHOWN).join(', ');
  return more > 0 ? t('compare.ranOn.more', { n: more, what: shown }) : shown;
}
