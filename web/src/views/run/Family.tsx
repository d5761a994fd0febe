import { Link } from '@tanstack/react-router';
import type { RunDetail, RunShort } from '../../api/types';
import { shortId } from '../../base/format';
import { plain } from '../../base/visible';
import { useWords } from '../../base/words';

/** The nearest relatives of a run: its parent, itself, the other forks of the same step, its own forks. */
export function Family({ run }: { readonly run: RunDetail }) {
  const { t } = useWords();
  const parent = run.lineage.ancestors[0];
  const me = { ...run, misses: run.counts.miss };
  const forks = parent ? [me, ...run.lineage.siblings.items].sort(byArm) : run.lineage.children.items.toSorted(byArm);
  const below = parent ? run.lineage.children.items : [];
  const total = parent ? run.lineage.siblings.total + 1 : run.lineage.children.total;
  const root = parent ?? me;
  return (
    <>
      <h2 className="h3 famtitle">
        <span>{t('run.familyTitle')}</span>
        {total > forks.length && <span>{t('run.moreRuns', { n: forks.length, total })}</span>}
      </h2>
      <div className="fam">
        <Relative run={root} mine={root.id === run.id} word={t('run.observed')} look="root" last={forks.length === 0} />
        {named(forks, t).map(([relative, word], at) => (
          <Relative
            key={relative.id}
            run={relative}
            mine={relative.id === run.id}
            word={word}
            look={relative.arm === 'control' ? 'control' : 'fork'}
            last={at === forks.length - 1 && below.length === 0}
          />
        ))}
        {named(below, t).map(([relative, word], at) => (
          <Relative
            key={relative.id}
            run={relative}
            mine={false}
            word={word}
            look="below"
            last={at === below.length - 1}
          />
        ))}
      </div>
    </>
  );
}

type Member = Pick<RunShort, 'id' | 'name' | 'arm' | 'started_at'>;

function byArm(a: Member, b: Member): number {
  return (a.arm === 'control' ? 1 : 0) - (b.arm === 'control' ? 1 : 0) || a.started_at.localeCompare(b.started_at);
}

function named(runs: readonly Member[], t: ReturnType<typeof useWords>['t']): readonly (readonly [Member, string])[] {
  const seen: Record<string, number> = {};
  return runs.map(run => {
    const arm = run.arm === 'candidate' ? 'candidate' : run.arm === 'control' ? 'control' : 'fork';
    seen[arm] = (seen[arm] ?? 0) + 1;
    return [run, t(`run.${arm}`, { n: seen[arm] })] as const;
  });
}

interface RelativeProps {
  readonly run: Member;
  readonly mine: boolean;
  readonly word: string;
  readonly look: 'root' | 'fork' | 'control' | 'below';
  readonly last: boolean;
}

function Relative({ run, mine, word, look, last }: RelativeProps) {
  const stroke = look === 'control' ? 'var(--text-3)' : 'var(--accent)';
  return (
    <Link
      to="/runs/$id"
      params={{ id: run.id }}
      search={{}}
      className={`${mine ? 'me' : ''} ${look === 'below' ? 'below' : ''}`}
      title={plain(`${run.name} · ${run.id}`)}
      {...(mine ? { 'aria-current': 'page' as const } : {})}
    >
      <svg width="18" height="22" aria-hidden="true">
        {look === 'root' ? (
          <>
            <circle
              cx="5"
              cy="11"
              r="3.2"
              fill={mine ? 'var(--text-2)' : 'none'}
              stroke="var(--text-2)"
              strokeWidth="1.5"
            />
            {!last && <path d="M5 14.5V22" stroke="var(--kept-bar)" strokeWidth="3" strokeDasharray="1.5 2" />}
          </>
        ) : (
          <>
            <path d={last ? 'M5 0v11' : 'M5 0v22'} stroke="var(--kept-bar)" strokeWidth="3" strokeDasharray="1.5 2" />
            <path d="M5 11h8" stroke={stroke} strokeWidth="2" />
            <circle cx="14" cy="11" r="3" fill={mine ? stroke : 'var(--surface-2)'} stroke={stroke} strokeWidth="1.5" />
          </>
        )}
      </svg>
      <span className="nw">{word}</span>
      <span className="mono dim ell hide-n">{shortId(run.id)}</span>
    </Link>
  );
}
