import { many, one, whole } from '../base/address';

/** What the addresses of the page say; anything else in them is left out. */

type Raw = Record<string, unknown>;

/** A document without the members that are undefined, so that they do not appear in an address. */
function said<T extends object>(found: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined)) as never;
}

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
  'q',
] as const;
export type Filter = (typeof FILTERS)[number];

export type RunsSearch = { readonly [K in Filter]?: string } & { readonly sel?: readonly string[] };

export function runsSearch(raw: Raw): RunsSearch {
  const filters = Object.fromEntries(FILTERS.map(name => [name, one(raw[name])]));
  const sel = many(raw['sel']);
  return said({ ...filters, sel: sel.length ? sel : undefined });
}

export const TABS = ['overview', 'messages', 'context', 'diff', 'raw', 'events'] as const;
export type Tab = (typeof TABS)[number];

export interface RunSearch {
  readonly step?: number;
  readonly tab?: Tab;
  readonly side?: 'tree';
  readonly q?: string;
}

export function runSearch(raw: Raw): RunSearch {
  return said({
    step: whole(raw['step']),
    tab: TABS.find(tab => tab === one(raw['tab'])),
    side: one(raw['side']) === 'tree' ? ('tree' as const) : undefined,
    q: one(raw['q']),
  });
}

export interface CompareSearch {
  readonly a?: string;
  readonly b?: string;
  readonly only?: 'differences';
  readonly row?: number;
}

export function compareSearch(raw: Raw): CompareSearch {
  return said({
    a: one(raw['a']),
    b: one(raw['b']),
    only: one(raw['only']) === 'differences' ? ('differences' as const) : undefined,
    row: whole(raw['row']),
  });
}

export interface SummarySearch {
  readonly run?: readonly string[];
}

export function summarySearch(raw: Raw): SummarySearch {
  const runs = many(raw['run']);
  return said({ run: runs.length ? runs : undefined });
}

export function lineageSearch(raw: Raw): { readonly run?: string } {
  return said({ run: one(raw['run']) });
}

export function replaysSearch(raw: Raw): { readonly run?: string; readonly first?: number } {
  return said({ run: one(raw['run']), first: whole(raw['first']) });
}

/**
 * Where a fork is cut; the router reads an address again after it was read, so that a number comes too. Undefined stands
 * there, since what is left out would be taken as the address has it.
 */
export function forkSearch(raw: Raw): { readonly from?: number | 'start' | undefined } {
  return { from: one(raw['from']) === 'start' ? 'start' : whole(String(raw['from'])) };
}

export const JOB_STATUSES = ['queued', 'running', 'waiting', 'rate_limited', 'done', 'failed', 'cancelled'] as const;

export interface JobsSearch {
  readonly status?: (typeof JOB_STATUSES)[number];
  readonly first?: number;
}

export function jobsSearch(raw: Raw): JobsSearch {
  return said({ status: JOB_STATUSES.find(status => status === one(raw['status'])), first: whole(raw['first']) });
}
