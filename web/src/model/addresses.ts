import { many, one, whole } from '../base/address';
import { rangeText, readRange } from './waterfall';

/**
 * What the addresses of the page say. Each reader names all its members, undefined ones too: what it left out the router
 * would take from the address as it stands there.
 */

type Raw = Record<string, unknown>;

export const FILTERS = [
  'agent',
  'since',
  'status',
  'model',
  'tool',
  'tag',
  'coverage',
  'misses',
  'forks',
  'roots',
  'q',
] as const;
type Filter = (typeof FILTERS)[number];

export const SINCE = ['hour', 'day', 'week'] as const;
export const COVERAGES = ['full', 'control_flow', 'limited_replay', 'trace_only', 'lossy'] as const;
const STATUSES = ['running', 'waiting', 'ok', 'error', 'cancelled', 'interrupted'] as const;

export type RunsSearch = { readonly [K in Filter]?: string | undefined } & {
  readonly sel?: readonly string[] | undefined;
  readonly sort?: 'family' | undefined;
  readonly coverage?: (typeof COVERAGES)[number] | undefined;
};

export function runsSearch(raw: Raw): RunsSearch {
  const filters: RunsSearch = Object.fromEntries(FILTERS.map(name => [name, one(raw[name])]));
  const sel = many(raw['sel']);
  return {
    ...filters,
    since: moment(one(raw['since'])),
    status: among(STATUSES, raw['status']),
    coverage: among(COVERAGES, raw['coverage']),
    misses: among(['1'], raw['misses']),
    forks: among(['1'], raw['forks']),
    roots: among(['1'], raw['roots']),
    sort: among(['family'], raw['sort']),
    sel: sel.length ? sel : undefined,
  };
}

function among<T extends string>(known: readonly T[], value: unknown): T | undefined {
  return known.find(name => name === one(value));
}

/** A word for a time before now, or a time. */
function moment(text: string | undefined): string | undefined {
  return among(SINCE, text) ?? (Number.isNaN(Date.parse(text ?? '')) ? undefined : text);
}

export const TABS = ['overview', 'messages', 'context', 'diff', 'raw', 'events'] as const;
export type Tab = (typeof TABS)[number];

export interface RunSearch {
  readonly step?: number | undefined;
  readonly tab?: Tab | undefined;
  readonly side?: 'tree' | undefined;
  readonly panel?: 'evidence' | undefined;
  readonly q?: string | undefined;
  /** The part of the time line that is shown; see `rangeText`. */
  readonly range?: string | undefined;
}

export function runSearch(raw: Raw): RunSearch {
  return {
    step: whole(raw['step']),
    tab: among(TABS, raw['tab']),
    side: among(['tree'], raw['side']),
    panel: among(['evidence'], raw['panel']),
    q: one(raw['q']),
    range: rangeText(readRange(one(raw['range']))),
  };
}

export interface EventsSearch {
  readonly event?: number | undefined;
  readonly type?: readonly string[] | undefined;
  readonly step?: number | undefined;
}

export function eventsSearch(raw: Raw): EventsSearch {
  const types = many(raw['type']).filter(type => /^[a-z]+\.[a-z_]+$/.test(type));
  return {
    event: whole(raw['event']) || undefined,
    type: types.length ? types : undefined,
    step: whole(raw['step']),
  };
}

export interface EffectsSearch {
  readonly run?: string | undefined;
  readonly call?: string | undefined;
}

export function effectsSearch(raw: Raw): EffectsSearch {
  return { run: one(raw['run']), call: one(raw['call']) };
}

export interface CompareSearch {
  readonly a?: string | undefined;
  readonly b?: string | undefined;
  readonly only?: 'differences' | undefined;
  readonly row?: number | undefined;
}

export function compareSearch(raw: Raw): CompareSearch {
  return {
    a: one(raw['a']),
    b: one(raw['b']),
    only: among(['differences'], raw['only']),
    row: whole(raw['row']),
  };
}

export interface SummarySearch {
  readonly run?: readonly string[] | undefined;
}

export function summarySearch(raw: Raw): SummarySearch {
  const runs = many(raw['run']);
  return { run: runs.length ? runs : undefined };
}

export function lineageSearch(raw: Raw): { readonly run?: string | undefined } {
  return { run: one(raw['run']) };
}

export function replaysSearch(raw: Raw): { readonly run?: string | undefined; readonly first?: number | undefined } {
  return { run: one(raw['run']), first: whole(raw['first']) };
}

/** Where a fork is cut. */
export function forkSearch(raw: Raw): { readonly from?: number | 'start' | undefined } {
  return { from: one(raw['from']) === 'start' ? 'start' : whole(raw['from']) };
}

export const JOB_STATUSES = ['queued', 'running', 'waiting', 'rate_limited', 'done', 'failed', 'cancelled'] as const;

export interface JobsSearch {
  readonly status?: (typeof JOB_STATUSES)[number] | undefined;
  readonly first?: number | undefined;
}

export function jobsSearch(raw: Raw): JobsSearch {
  return { status: among(JOB_STATUSES, raw['status']), first: whole(raw['first']) };
}
