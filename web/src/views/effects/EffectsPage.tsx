import './effects.css';
import { useInfiniteQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { useState } from 'react';
import { address, get, path } from '../../api/client';
import type { OpenEffect, OpenEffects } from '../../api/types';
import { moment } from '../../base/format';
import { type Hint, useKeys } from '../../base/keys';
import { useWords } from '../../base/words';
import { Chip } from '../../widgets/controls';
import { Icon } from '../../widgets/Icon';
import { FindRuns, Foot } from '../../widgets/slots';
import { Failure, Loading } from '../../widgets/states';
import { Copy, RunText, Unknown } from '../../widgets/text';
import { Settle } from './Settle';

const route = getRouteApi('/effects');
const HINTS: readonly Hint[] = [
  { keys: ['j', 'k'], does: 'key.move' },
  { keys: ['Enter'], does: 'key.settle' },
  { keys: ['o'], does: 'key.openStep' },
  { keys: ['?'], does: 'key.all' },
];

/** Writes that were begun and of which nobody knows the end: ask whoever received them, and say here what became of them. */
export function EffectsPage() {
  const { t } = useWords();
  const { run, call } = route.useSearch();
  const navigate = route.useNavigate();
  const found = useInfiniteQuery({
    queryKey: ['effects', run ?? null],
    queryFn: ({ pageParam, signal }) =>
      get<OpenEffects>(
        run === undefined ? address('/api/effects', { cursor: pageParam }) : path`/api/runs/${run}/effects`,
        signal,
      ),
    initialPageParam: null as string | null,
    getNextPageParam: last => last.cursor,
  });
  const items = found.data?.pages.flatMap(page => page.items) ?? [];
  const runs = found.data?.pages.at(-1)?.runs ?? 0;
  const [at, setAt] = useState(0);
  const current = items[Math.min(at, items.length - 1)];
  const open = (effect: OpenEffect | undefined) => {
    if (effect) void navigate({ search: { run: effect.run_id, call: effect.call_id } });
  };
  const close = () => void navigate({ search: before => ({ ...before, call: undefined }), replace: true });
  useKeys({
    j: () => setAt(Math.min(at + 1, items.length - 1)),
    k: () => setAt(Math.max(at - 1, 0)),
    Enter: () => open(current),
    o: () => {
      if (current) void navigate({ to: '/runs/$id', params: { id: current.run_id }, search: { step: current.step } });
    },
  });
  return (
    <main className="page">
      <FindRuns />
      <div className="hd">
        <div className="row wrap">
          <h1>{t('effects.title')}</h1>
          {found.data && <span className="dim">{t('effects.count', { n: items.length })}</span>}
          {run !== undefined && (
            <Chip on onToggle={() => void navigate({ search: {} })}>
              <span className="mono">
                <RunText>{run}</RunText>
              </span>{' '}
              ×
            </Chip>
          )}
        </div>
        <p className="note">{t('effects.say')}</p>
      </div>
      {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
      {found.isPending && <Loading what={t('effects.title')} rows={6} />}
      {found.data && items.length === 0 && (
        <div className="state">
          <p>
            <b>{t('effects.none')}</b>
          </p>
          <p className="t2">{t('effects.noneSay')}</p>
        </div>
      )}
      {items.length > 0 && (
        <div className="tblwrap">
          <table className="tbl effects">
            <Head />
            <tbody>
              {items.map((effect, index) => (
                <Row
                  key={`${effect.run_id} ${effect.call_id}`}
                  effect={effect}
                  current={effect === current}
                  onLook={() => setAt(index)}
                  onSettle={() => open(effect)}
                />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {found.hasNextPage && (
        <button type="button" className="btn" disabled={found.isFetching} onClick={() => void found.fetchNextPage()}>
          {t('effects.more')}
        </button>
      )}
      {run !== undefined && call !== undefined && <Settle run={run} call={call} onClose={close} />}
      <Foot hints={HINTS}>{found.data && <span>{t('effects.runs', { n: runs })}</span>}</Foot>
    </main>
  );
}

const COLUMNS = ['run', 'tool', 'step', 'since', 'status', 'key', 'lookup'] as const;

function Head() {
  const { t } = useWords();
  return (
    <thead>
      <tr>
        {COLUMNS.map(name => (
          <th key={name} scope="col" className={name === 'step' ? 'r' : undefined}>
            {t(`effects.col.${name}`)}
          </th>
        ))}
        <th scope="col">
          <span className="vh">{t('effects.settle')}</span>
        </th>
      </tr>
    </thead>
  );
}

interface RowProps {
  readonly effect: OpenEffect;
  readonly current: boolean;
  readonly onLook: () => void;
  readonly onSettle: () => void;
}

function Row({ effect, current, onLook, onSettle }: RowProps) {
  const { t, language } = useWords();
  const goesOn = effect.run_status === 'running' || effect.run_status === 'waiting';
  return (
    <tr className={current ? 'cur' : undefined} aria-current={current || undefined} onMouseDown={onLook}>
      <td>
        <Link to="/runs/$id" params={{ id: effect.run_id }} search={{}} title={effect.run_id}>
          <RunText>{effect.run_name}</RunText>
        </Link>
        <div className="mono dim">
          <RunText>{effect.run_id}</RunText>
        </div>
      </td>
      <td className="mono">
        <b>
          <RunText>{effect.tool}</RunText>
        </b>
      </td>
      <td className="r">
        <Link
          to="/runs/$id"
          params={{ id: effect.run_id }}
          search={{ step: effect.step }}
          aria-label={t('step.title', { step: effect.step })}
        >
          {effect.step}
        </Link>
      </td>
      <td title={effect.since}>{moment(effect.since, language)}</td>
      <td>
        <span className={`st ${goesOn ? 'run' : 'int'}`}>
          <Icon sign={goesOn ? 'run' : 'int'} />
          {t(goesOn ? 'effects.goesOn' : effect.status === 'unknown' ? 'effects.unknown' : 'effects.open')}
        </span>
      </td>
      <td className="mono">
        {effect.idempotency_key === null ? (
          <Unknown />
        ) : (
          <span className="row">
            <span className="ell key">
              <RunText>{effect.idempotency_key}</RunText>
            </span>
            <Copy text={effect.idempotency_key} label={t('effects.copyKey')} />
          </span>
        )}
      </td>
      <td className="t2">{t(effect.lookup ? 'effects.lookup' : 'effects.noLookup')}</td>
      <td className="r">
        <button type="button" className="btn s" onClick={onSettle}>
          {t('effects.settle')}
        </button>
      </td>
    </tr>
  );
}
