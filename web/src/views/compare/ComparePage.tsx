import './compare.css';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { useVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useRef } from 'react';
import { address, get } from '../../api/client';
import { usePages } from '../../api/pages';
import type { ComparePage as Compared, ComparedHead, ComparedRow, Run } from '../../api/types';
import { moment } from '../../base/format';
import { type Hint, useKeys } from '../../base/keys';
import { type Speech, useWords } from '../../base/words';
import type { CompareSearch } from '../../model/addresses';
import { type Miss, meaningOf, missesOf } from '../../model/meaning';
import { changedPlaces } from '../../model/overrides';
import { Seg } from '../../widgets/controls';
import { Icon } from '../../widgets/Icon';
import { FindRuns, Foot } from '../../widgets/slots';
import { Failure, Loading, Strip } from '../../widgets/states';
import { Tag } from '../../widgets/tags';
import { Kbd, RunText } from '../../widgets/text';
import { Answers } from './Answers';
import { Deltas } from './Deltas';
import { Depended } from './Depended';
import { Row } from './Row';
import { RowDetail } from './RowDetail';

const route = getRouteApi('/compare');
const HINTS: readonly Hint[] = [
  { keys: ['j', 'k'], does: 'key.move' },
  { keys: ['n', 'p'], does: 'key.difference' },
  { keys: ['Enter'], does: 'key.openB' },
  { keys: ['o'], does: 'key.openA' },
  { keys: ['s'], does: 'key.swap' },
  { keys: ['d'], does: 'key.only' },
  { keys: ['?'], does: 'key.all' },
];

/** Two runs side by side, step by step. */
export function ComparePage() {
  const { t } = useWords();
  const { a, b, only } = route.useSearch();
  const chosen = a !== undefined && b !== undefined;
  const head = useQuery({
    queryKey: ['compare', a, b],
    queryFn: ({ signal }) => get<Compared>(address('/api/compare', { a, b, only: 'differences', limit: 1000 }), signal),
    enabled: chosen,
  });
  if (!chosen || !head.data) {
    return (
      <main className="page">
        <FindRuns />
        <h1 className="vh">{t('compare.title')}</h1>
        {!chosen && <p className="state">{t('compare.choose')}</p>}
        {head.isError && <Failure error={head.error} again={() => void head.refetch()} />}
        {chosen && head.isPending && <Loading what={t('compare.title')} rows={10} />}
        <Foot hints={HINTS} />
      </main>
    );
  }
  return (
    <>
      <FindRuns />
      <Loaded a={a} b={b} only={only === 'differences'} head={head.data.header} differing={head.data.items} />
    </>
  );
}

const SIZE = 200;
const HEIGHT = 28;

interface LoadedProps {
  readonly a: string;
  readonly b: string;
  readonly only: boolean;
  readonly head: ComparedHead;
  /** The first thousand rows that differ. */
  readonly differing: readonly ComparedRow[];
}

function Loaded({ a, b, only, head, differing: rowsApart }: LoadedProps) {
  const speech = useWords();
  const { t } = speech;
  const differing = rowsApart.map(one => one.row);
  const firstApart = rowsApart.find(one => one.row === head.first?.row);
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const pane = useRef<HTMLDivElement>(null);
  const rows = usePages<ComparedRow>({
    key: ['compare', a, b, 'rows', only],
    size: SIZE,
    load: (first, limit, signal) =>
      get<Compared>(address('/api/compare', { a, b, first, limit, only: only ? 'differences' : undefined }), signal),
  });
  const total = rows.total ?? 0;
  const list = useVirtualizer({
    count: total,
    getScrollElement: () => pane.current,
    estimateSize: () => HEIGHT,
    overscan: 10,
    initialRect: { width: 1280, height: 600 },
  });
  const items = list.getVirtualItems();
  const [first, last] = [items[0]?.index ?? 0, items.at(-1)?.index ?? 0];
  const { look } = rows;
  useEffect(() => look(first, last), [look, first, last]);
  const change = (next: CompareSearch) => void navigate({ search: before => ({ ...before, ...next }), replace: true });
  const current = search.row ?? head.first?.row ?? 0;
  const place = only ? Math.max(0, differing.indexOf(current)) : current;
  const go = (to: number) => {
    const index = Math.max(0, Math.min(total - 1, to));
    change({ row: only ? differing[index] : index });
    list.scrollToIndex(index, { align: 'auto' });
  };
  const jump = (by: 1 | -1) => {
    const next = by > 0 ? differing.find(row => row > current) : differing.findLast(row => row < current);
    if (next !== undefined) go(only ? differing.indexOf(next) : next);
  };
  const swap = () => change({ a: b, b: a, row: undefined });
  const open = (side: 'left' | 'right') => {
    const row = rows.at(place);
    const step = row?.[side]?.idx;
    void navigate({
      to: '/runs/$id',
      params: { id: side === 'left' ? a : b },
      search: step === undefined ? {} : { step },
    });
  };
  useKeys({
    j: () => go(place + 1),
    k: () => go(place - 1),
    n: () => jump(1),
    p: () => jump(-1),
    s: swap,
    d: () => change({ only: only ? undefined : 'differences' }),
    o: () => open('left'),
    Enter: () => open('right'),
  });
  const row = rows.at(place);
  return (
    <main className="list">
      <h1 className="vh">{t('compare.title')}</h1>
      <div className="ab abh">
        <SideHead run={head.left} side="A" other={head.right} />
        <span className="mid">
          <button type="button" className="btn s q" onClick={swap}>
            {t('compare.swap')}
          </button>
        </span>
        <SideHead run={head.right} side="B" other={head.left} />
      </div>
      <Misses run={head.left} side="A" missed={missesOf(rowsApart, 'left')} onGo={row => change({ row })} />
      <Misses run={head.right} side="B" missed={missesOf(rowsApart, 'right')} onGo={row => change({ row })} />
      <Deltas head={head} total={rowsOf(head)} />
      <Depended snapshot={head.snapshot} templates={head.counts['other_templates'] ?? 0} />
      <div className="pin">
        <Tag look="new" sign="fork">
          {t('compare.first')}
        </Tag>
        <b className="ell">
          {head.first
            ? `${t('step.title', { step: String(head.first.left_idx) })}${firstApart ? `: ${t(meaningOf(firstApart))}` : ''}`
            : sameness(head, speech)}
        </b>
        <span className="grow" />
        <Seg
          label={t('compare.title')}
          value={only ? 'differences' : 'all'}
          choices={[
            { value: 'all', label: t('compare.all', { n: rowsOf(head) }) },
            { value: 'differences', label: t('compare.only', { n: differing.length }) },
          ]}
          onChoose={value => change({ only: value === 'differences' ? 'differences' : undefined })}
        />
        <span className="note hide-n">
          <Kbd keys={['n', 'p']} /> {t('compare.nextPrevious')}
        </span>
      </div>
      {row && row.status !== 'same' && <RowDetail a={a} b={b} row={row} />}
      {rows.error && <Failure error={rows.error} again={rows.again} />}
      <div className="page" ref={pane}>
        <div
          className="rows"
          role="table"
          aria-label={t('compare.title')}
          aria-rowcount={total}
          style={{ height: list.getTotalSize() }}
        >
          {items.map(item => {
            const found = rows.at(item.index);
            return (
              <div
                key={item.key}
                role="row"
                aria-rowindex={item.index + 1}
                data-index={item.index}
                ref={list.measureElement}
                className="abat"
                style={{ transform: `translateY(${item.start}px)` }}
              >
                {found ? (
                  <Row
                    row={found}
                    cut={cutBefore(found, rows.at(item.index - 1)) ? head.right.forked_from_step : null}
                    first={found.row === head.first?.row}
                    current={found.row === current}
                    onPick={() => change({ row: found.row })}
                  />
                ) : (
                  <div className="abrow" />
                )}
              </div>
            );
          })}
        </div>
        <Answers answers={head.answers} />
      </div>
      <Foot hints={HINTS}>{t('compare.aligned', { n: rowsOf(head) })}</Foot>
    </main>
  );
}

const STATUSES = ['same', 'input_differs', 'output_differs', 'only_left', 'only_right', 'error_one_side'] as const;

function rowsOf(head: ComparedHead): number {
  return STATUSES.reduce((sum, status) => sum + (head.counts[status] ?? 0), 0);
}

/** Whether B was cut between these rows: it kept the one above and not this one. */
function cutBefore(row: ComparedRow, above: ComparedRow | undefined): boolean {
  return above?.right?.source === 'recorded' && row.right !== null && row.right.source !== 'recorded';
}

interface SideHeadProps {
  readonly run: Run;
  readonly side: 'A' | 'B';
  readonly other: Run;
}

function SideHead({ run, side, other }: SideHeadProps) {
  const { t, language } = useWords();
  const changed = changedPlaces(run.overrides).map(place => (typeof place === 'string' ? t(place) : place.place));
  const fork = run.parent_run_id === other.id;
  return (
    <div className="sidehead">
      <span className={side === 'A' ? 'side' : 'side bb'}>{side}</span>
      <div className="grow">
        <div className="row">
          <h2 className="ell">
            <Link to="/runs/$id" params={{ id: run.id }} search={{}}>
              <RunText>{run.name}</RunText>
            </Link>
          </h2>
          {run.hypothetical_from !== null && (
            <Tag look="hyp" sign="warn">
              {t('run.hypothetical', { step: run.hypothetical_from })}
            </Tag>
          )}
        </div>
        <p className="note ell">
          <span className="mono">{run.id}</span>
          {!run.name.startsWith(run.agent) && (
            <>
              {' · '}
              <RunText>{run.agent}</RunText>
            </>
          )}
          {run.model && (
            <>
              {' · '}
              <RunText>{run.model}</RunText>
            </>
          )}
          {' · '}
          {moment(run.started_at, language)}
          {fork && <> · {t('compare.forkOf', { side: side === 'A' ? 'B' : 'A', step: run.forked_from_step ?? 0 })}</>}
          {changed.length > 0 && <> · {t('override.count', { n: changed.length, what: changed.join(', ') })}</>}
        </p>
      </div>
    </div>
  );
}

/** What is said of runs no step of which differs in value. */
function sameness({ identical, counts }: ComparedHead, { t }: Speech): string {
  const n = counts['other_templates'] ?? 0;
  if (identical) return t('compare.identical');
  if (n === 0) return t('compare.sameValues');
  return `${t(counts['respelled'] ? 'compare.sameValues' : 'compare.noneDiffers')} ${t('compare.otherTemplates', { n })}`;
}

interface MissesProps {
  readonly run: Run;
  readonly side: 'A' | 'B';
  readonly missed: readonly Miss[];
  readonly onGo: (row: number) => void;
}

/** Misses stand above every conclusion. */
function Misses({ run, side, missed, onGo }: MissesProps) {
  const { t } = useWords();
  const [first] = missed;
  if (run.counts.miss === 0) return null;
  return (
    <Strip
      actions={
        first && (
          <button type="button" className="more" onClick={() => onGo(first.row)}>
            {t('compare.goTo')}
          </button>
        )
      }
    >
      <Icon sign="miss" /> <b>{t('compare.misses', { n: run.counts.miss, side })}</b>{' '}
      {first && (
        <>
          {t('compare.missAt', { step: first.idx })}{' '}
          <b className="mono">
            <RunText>{first.name}</RunText>
          </b>{' '}
          {t('compare.notRun')}{' '}
        </>
      )}
      {run.hypothetical_from !== null && t('compare.hypothetical', { side, step: run.hypothetical_from })}
    </Strip>
  );
}
