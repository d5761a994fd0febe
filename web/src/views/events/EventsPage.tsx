import './events.css';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { useVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useRef } from 'react';
import { address, get, path } from '../../api/client';
import { usePages } from '../../api/pages';
import type { EventEnvelope, EventPage, RunDetail } from '../../api/types';
import { type Hint, useKeys } from '../../base/keys';
import { plain } from '../../base/visible';
import { useWords } from '../../base/words';
import type { EventsSearch } from '../../model/addresses';
import { Chip, Item, Menu } from '../../widgets/controls';
import { FindRuns, Foot } from '../../widgets/slots';
import { Failure, Loading } from '../../widgets/states';
import { Copy, RunText } from '../../widgets/text';
import { EventAside } from './EventAside';
import { EventRow, HEAD, Head, ROW } from './EventRow';

const route = getRouteApi('/runs/$id/events');
const PAGE = 200;
const HINTS: readonly Hint[] = [
  { keys: ['j', 'k'], does: 'key.move' },
  { keys: ['o'], does: 'key.openStep' },
  { keys: ['Escape'], does: 'key.back' },
  { keys: ['?'], does: 'key.all' },
];

/** The log of a run as it was sealed, event by event: find one by its number, keep some types, go to its step and back. */
export function EventsPage() {
  const { id } = route.useParams();
  const { t } = useWords();
  const run = useQuery({
    queryKey: ['run', id],
    queryFn: ({ signal }) => get<RunDetail>(path`/api/runs/${id}`, signal),
  });
  if (run.data) return <Loaded key={id} run={run.data} />;
  return (
    <main className="page">
      <h1 className="vh">{t('tab.events')}</h1>
      {run.isError ? (
        <Failure error={run.error} again={() => void run.refetch()} />
      ) : (
        <Loading what={t('tab.events')} rows={12} />
      )}
    </main>
  );
}

type Change = (next: EventsSearch) => void;

function Loaded({ run }: { readonly run: RunDetail }) {
  const { t } = useWords();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const change: Change = next => void navigate({ search: before => ({ ...before, ...next }), replace: true });
  const back = () =>
    void navigate({ to: '/runs/$id', params: { id: run.id }, search: { step: search.step, tab: 'events' } });
  useEffect(() => {
    document.title = `${t('tab.events')} · ${plain(run.name)} · Agent Loupe`;
    return () => {
      document.title = 'Agent Loupe';
    };
  }, [run.name, t]);
  useKeys({ Escape: back });
  return (
    <main className="evpage">
      <FindRuns />
      <div className="hd">
        <div className="row">
          <span className="crumb ell">
            <Link to="/runs" search={{}}>
              {t('run.crumb')}
            </Link>
            {' / '}
            <Link to="/runs/$id" params={{ id: run.id }} search={{}}>
              <RunText>{run.name}</RunText>
            </Link>
            {' /'}
          </span>
          <h1>{t('tab.events')}</h1>
          <span className="mono dim nw hide-n">{run.id}</span>
          <Copy text={run.id} label={t('state.copyId')} />
        </div>
        <Filters run={run} search={search} onChange={change} />
      </div>
      {/* Another filter is another list: it begins at its top, or at the event that the address names. */}
      <List key={`${search.type?.join()} ${search.step}`} run={run} search={search} onChange={change} />
    </main>
  );
}

interface FiltersProps {
  readonly run: RunDetail;
  readonly search: EventsSearch;
  readonly onChange: Change;
}

function Filters({ run, search, onChange }: FiltersProps) {
  const { t } = useWords();
  const found = useQuery({
    queryKey: ['run', run.id, 'eventTypes'],
    queryFn: ({ signal }) =>
      get<EventPage>(address(path`/api/runs/${run.id}/events`, { limit: 1, types: true }), signal),
  });
  const chosen = search.type ?? [];
  const toggle = (type: string) => {
    const next = chosen.includes(type) ? chosen.filter(one => one !== type) : [...chosen, type];
    onChange({ type: next.length ? next : undefined });
  };
  return (
    <div className="row wrap">
      <Menu
        label={t('events.type')}
        chosen={chosen.length > 0 && chosen.join(', ')}
        onClear={() => onChange({ type: undefined })}
      >
        {(found.data?.types ?? []).map(({ value, count }) => (
          <Item key={value} note={count} chosen={chosen.includes(value)} onChoose={() => toggle(value)}>
            <span className="mono">{value}</span>
          </Item>
        ))}
      </Menu>
      {search.step !== undefined && (
        <Chip on onToggle={() => onChange({ step: undefined })}>
          {t('events.ofStep', { step: String(search.step) })} ×
        </Chip>
      )}
      <span className="note">{t('events.say')}</span>
    </div>
  );
}

function List({ run, search, onChange }: FiltersProps) {
  const { t } = useWords();
  const navigate = route.useNavigate();
  const pane = useRef<HTMLDivElement>(null);
  const { type, step, event: asked } = search;
  const api = path`/api/runs/${run.id}/events`;
  const live = run.status === 'running' || run.status === 'waiting';
  const pages = usePages<EventEnvelope>({
    key: ['run', run.id, 'events', type ?? null, step ?? null],
    size: PAGE,
    load: (first, limit, signal) => get<EventPage>(address(api, { type, step, first, limit }), signal),
    every: live && 2000,
  });
  const total = pages.total ?? 0;
  const rows = useVirtualizer({
    count: total,
    getScrollElement: () => pane.current,
    estimateSize: () => ROW,
    overscan: 12,
    scrollMargin: HEAD,
    scrollPaddingStart: HEAD,
    initialRect: { width: 900, height: 700 },
  });
  const items = rows.getVirtualItems();
  const [first, last] = [items[0]?.index ?? 0, items.at(-1)?.index ?? 0];
  const { look } = pages;
  useEffect(() => look(first, last), [look, first, last]);
  const place = usePlace(api, search, total);
  const current = place ?? 0;
  useEffect(() => {
    if (place !== undefined) rows.scrollToIndex(place, { align: 'auto' });
  }, [rows, place]);
  const event = pages.at(current);
  const go = (to: number) => {
    const next = pages.at(Math.max(0, Math.min(total - 1, to)));
    if (next) onChange({ event: next.sequence });
    else if (total > 0) rows.scrollToIndex(Math.max(0, Math.min(total - 1, to)));
  };
  const open = () => {
    if (event?.step != null)
      void navigate({ to: '/runs/$id', params: { id: run.id }, search: { step: event.step, tab: 'events' } });
  };
  useKeys({
    j: () => go(current + 1),
    k: () => go(current - 1),
    ArrowDown: () => go(current + 1),
    ArrowUp: () => go(current - 1),
    PageDown: () => go(current + 20),
    PageUp: () => go(current - 20),
    o: open,
    Enter: open,
  });
  if (pages.error) return <Failure error={pages.error} again={pages.again} />;
  const started = new Date(run.started_at).getTime();
  // What the address names may be hidden by the filter; then the one that is current in the list is shown.
  const shown = event?.sequence ?? asked;
  return (
    <div className="evgrid">
      <div className="pane tblwrap" ref={pane}>
        {pages.total === undefined && <Loading what={t('tab.events')} rows={14} />}
        {pages.total === 0 && <p className="state t2">{t('events.noneOf')}</p>}
        <div role="table" aria-label={t('tab.events')} aria-rowcount={total + 1} hidden={total === 0}>
          <Head />
          <div role="rowgroup" className="rows" style={{ height: rows.getTotalSize() }}>
            {items.map(item => (
              <EventRow
                key={item.key}
                top={item.start - HEAD}
                index={item.index}
                event={pages.at(item.index)}
                run={run.id}
                started={started}
                current={item.index === current}
                onOpen={sequence => onChange({ event: sequence })}
              />
            ))}
          </div>
        </div>
      </div>
      {shown !== undefined && <EventAside run={run.id} sequence={shown} />}
      <Foot hints={HINTS}>
        <span>{t('events.of', { n: total, total: run.events })}</span>
      </Foot>
    </div>
  );
}

/** Where in the filtered list the event stands that the address names; of one that the filter hides, the next that it shows. */
function usePlace(api: string, search: EventsSearch, total: number): number | undefined {
  const { event, type, step } = search;
  const filtered = type !== undefined || step !== undefined;
  const found = useQuery({
    queryKey: ['eventPlace', api, type ?? null, step ?? null, event ?? null],
    queryFn: ({ signal }) => get<EventPage>(address(api, { type, step, at: event, limit: 1 }), signal),
    enabled: event !== undefined && filtered,
    staleTime: Number.POSITIVE_INFINITY,
    placeholderData: before => before,
  });
  if (event === undefined || total === 0) return undefined;
  const place = filtered ? found.data?.first : event - 1;
  return place === undefined ? undefined : Math.min(place, total - 1);
}
