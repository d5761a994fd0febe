import './runs.css';
import { getRouteApi } from '@tanstack/react-router';
import { useVirtualizer } from '@tanstack/react-virtual';
import { useCallback, useEffect, useRef, useState } from 'react';
import { usePages } from '../../api/pages';
import type { Run } from '../../api/types';
import { zone } from '../../base/format';
import { type Hint, useKeys } from '../../base/keys';
import { lift, reveal, TALL, TALLEST } from '../../base/tall';
import { useWords } from '../../base/words';
import { FILTERS, type RunsSearch } from '../../model/addresses';
import { lineOf } from '../../model/descent';
import { Icon } from '../../widgets/Icon';
import { Finder, Foot } from '../../widgets/slots';
import { Failure, Loading } from '../../widgets/states';
import { SourceTag } from '../../widgets/tags';
import { Command } from '../../widgets/text';
import { Filters } from './Filters';
import { DropZone, ImportButton, type Importer, useImporter } from './Importing';
import { loadRuns } from './queries';
import { RunRow } from './RunRow';

const route = getRouteApi('/runs');
const ROW = 36;
const HEAD = 29;
const PAGE = 100;
const POLL = 3000;
const HINTS: readonly Hint[] = [
  { keys: ['j', 'k'], does: 'key.move' },
  { keys: ['x'], does: 'key.select' },
  { keys: ['Enter'], does: 'key.open' },
  { keys: ['c'], does: 'key.compare' },
  { keys: ['/'], does: 'key.find' },
  { keys: ['?'], does: 'key.all' },
];

/** All runs, newest first or by family: filter, select, compare, import. */
export function RunsPage() {
  const { t } = useWords();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const selected = search.sel ?? [];
  const change = useCallback(
    (next: RunsSearch) => void navigate({ search: before => ({ ...before, ...next }), replace: true }),
    [navigate],
  );
  const select = (id: string) => {
    const sel = selected.includes(id) ? selected.filter(one => one !== id) : [...selected, id];
    void navigate({
      search: before => ({ ...before, sel: sel.length ? sel : undefined }),
      replace: true,
    });
  };
  const compare = () => {
    const [a, b] = selected;
    if (selected.length > 2) void navigate({ to: '/summary', search: { run: selected } });
    else if (a && b) void navigate({ to: '/compare', search: { a, b } });
  };
  const importer = useImporter();
  return (
    <main className="list">
      <Finder label={t('app.find')} value={search.q ?? ''} onFind={q => change({ q: q || undefined })} />
      <List search={search} selected={selected} onSelect={select} onCompare={compare} importer={importer}>
        <Filters search={search} onChange={change} />
      </List>
      <DropZone importer={importer} />
    </main>
  );
}

interface ListProps {
  readonly search: RunsSearch;
  readonly selected: readonly string[];
  readonly onSelect: (id: string) => void;
  readonly onCompare: () => void;
  readonly importer: Importer;
  readonly children: React.ReactNode;
}

function List({ search, selected, onSelect, onCompare, importer, children }: ListProps) {
  const { t } = useWords();
  const navigate = route.useNavigate();
  const pane = useRef<HTMLDivElement>(null);
  const [current, setCurrent] = useState(0);
  const [atTop, setAtTop] = useState(true);
  const { sel: _, ...filters } = search;
  const pages = usePages<Run>({
    key: ['runs', filters],
    size: PAGE,
    load: (first, limit, signal) => loadRuns(search, first, limit, signal),
    // Further down nothing is asked for by itself: new runs on top would move what is being read.
    every: atTop && POLL,
  });
  const total = pages.total ?? 0;
  const rows = useVirtualizer<HTMLDivElement, HTMLDivElement>({
    ...TALL,
    count: total,
    getScrollElement: () => pane.current,
    estimateSize: () => ROW,
    overscan: 8,
    initialRect: { width: 1280, height: 720 },
  });
  const items = rows.getVirtualItems();
  const [first, last] = [items[0]?.index ?? 0, items.at(-1)?.index ?? 0];
  const { look } = pages;
  useEffect(() => look(first, last), [look, first, last]);
  const go = (to: number) => {
    const next = Math.max(0, Math.min(total - 1, to));
    setCurrent(next);
    reveal(rows, next, ROW, HEAD);
  };
  const run = pages.at(current);
  useKeys({
    j: () => go(current + 1),
    k: () => go(current - 1),
    ArrowDown: () => go(current + 1),
    ArrowUp: () => go(current - 1),
    Home: () => go(0),
    End: () => go(total - 1),
    x: () => run && onSelect(run.id),
    c: onCompare,
    Enter: () => run && void navigate({ to: '/runs/$id', params: { id: run.id }, search: {} }),
  });
  const shown = inView(pane.current, rows.scrollOffset ?? 0, total);
  const lifted = lift(rows);
  return (
    <>
      <div className="hd">
        <div className="row">
          <h1>{t('runs.title')}</h1>
          {pages.total !== undefined && <span className="dim">{t('runs.all', { n: total })}</span>}
          {atTop && (
            <span className="st run small">
              <Icon sign="live" />
              {t('runs.live')}
            </span>
          )}
          <span className="grow" />
          <ImportButton importer={importer} />
          <Selection selected={selected} onCompare={onCompare} />
        </div>
        {children}
      </div>
      {pages.error ? (
        <Failure error={pages.error} again={pages.again} />
      ) : (
        <div className="pane tblwrap grow" ref={pane} onScroll={event => setAtTop(event.currentTarget.scrollTop < ROW)}>
          {pages.total === undefined && <Loading what={t('runs.title')} rows={12} />}
          {pages.total === 0 && <Nothing search={search} />}
          <div role="table" aria-label={t('runs.title')} aria-rowcount={total + 1} hidden={total === 0}>
            <Head />
            <div role="rowgroup" className="rows" style={{ height: Math.min(rows.getTotalSize(), TALLEST) }}>
              {items.map(item => {
                const found = pages.at(item.index);
                return (
                  <div
                    key={item.key}
                    role="row"
                    aria-rowindex={item.index + 2}
                    className={`rr ${found && selected.includes(found.id) ? 'sel' : ''} ${item.index === current ? 'cur' : ''}`}
                    style={{ transform: `translateY(${item.start - lifted}px)` }}
                    onMouseDown={() => setCurrent(item.index)}
                  >
                    {found ? (
                      <RunRow
                        run={found}
                        selected={selected.includes(found.id)}
                        current={item.index === current}
                        line={lineOf(found, pages.at(item.index + 1), search.sort === 'family')}
                        onSelect={() => onSelect(found.id)}
                      />
                    ) : (
                      <span role="cell" className="cell skelcell">
                        <span className="skel" />
                      </span>
                    )}
                  </div>
                );
              })}
            </div>
          </div>
        </div>
      )}
      <Foot hints={HINTS}>
        <span className="row hide-n">
          {(['cassette', 'live', 'miss'] as const).map(source => (
            <SourceTag key={source} source={source} />
          ))}
        </span>
        {total > 0 && <span>{t('runs.rows', { first: shown[0], last: shown[1], total })}</span>}
      </Foot>
    </>
  );
}

/** Numbers of the first and the last row that can be seen, from 1. */
function inView(pane: HTMLElement | null, offset: number, total: number): readonly [number, number] {
  if (!pane) return [Math.min(1, total), total];
  const first = Math.floor(offset / ROW);
  return [Math.min(first + 1, total), Math.min(total, Math.floor((offset + pane.clientHeight - HEAD) / ROW))];
}

function Selection({ selected, onCompare }: { readonly selected: readonly string[]; readonly onCompare: () => void }) {
  const { t } = useWords();
  const navigate = route.useNavigate();
  if (selected.length < 2) return null;
  return (
    <>
      <button
        type="button"
        className="btn"
        onClick={() => void navigate({ to: '/summary', search: { run: selected } })}
      >
        {t('runs.summary', { n: selected.length })}
      </button>
      {selected.length === 2 && (
        <button type="button" className="btn p" onClick={onCompare}>
          {t('runs.compare', { n: 2 })} <kbd>c</kbd>
        </button>
      )}
    </>
  );
}

const COLUMNS = [
  ['runs.selectColumn', 'vh'],
  ['runs.col.run', ''],
  ['runs.col.agent', 'hide-n'],
  ['runs.col.model', ''],
  ['runs.col.status', ''],
  ['runs.col.coverage', ''],
  ['runs.col.steps', 'r'],
  ['runs.col.answers', ''],
  ['runs.col.in', 'r'],
  ['runs.col.out', 'r'],
  ['runs.col.cost', 'r'],
  ['runs.col.time', 'r'],
  ['runs.col.started', 'r'],
] as const;

function Head() {
  const { t, language } = useWords();
  return (
    <div role="rowgroup" className="rhead">
      <div role="row" className="rr head" aria-rowindex={1}>
        {COLUMNS.map(([word, look]) => (
          <span
            key={word}
            role="columnheader"
            className={`cell ${look === 'vh' ? '' : look}`}
            title={word === 'runs.col.answers' ? t('runs.col.answers.title') : undefined}
          >
            <span className={look === 'vh' ? 'vh' : ''}>
              {t(word)}
              {word === 'runs.col.started' && ` ${zone(language)}`}
            </span>
          </span>
        ))}
      </div>
    </div>
  );
}

/** An empty list: how to fill it, or which filter emptied it. */
function Nothing({ search }: { readonly search: RunsSearch }) {
  const { t } = useWords();
  const navigate = route.useNavigate();
  const filters = FILTERS.filter(name => search[name]);
  if (filters.length) {
    const named = filters.map(name => `${t(`runs.filter.${name}`)} ${search[name] === '1' ? '' : search[name]}`.trim());
    return (
      <div className="state">
        <p>{t('runs.none', { filters: named.join(', ') })}</p>
        <button
          type="button"
          className="btn"
          onClick={() => void navigate({ search: ({ sort }) => ({ sort }), replace: true })}
        >
          {t('runs.clear')}
        </button>
      </div>
    );
  }
  return (
    <div className="state">
      <h2>{t('runs.empty')}</h2>
      <p className="t2">{t('runs.empty.say')}</p>
      <Command>agentloupe demo</Command>
      <Command>agentloupe run -- python my_agent.py</Command>
      <p className="note">{t('runs.empty.or')}</p>
    </div>
  );
}
