import { address, get } from '../../api/client';
import type { RunPage } from '../../api/types';
import type { RunsSearch } from '../../model/addresses';

const SINCE: Readonly<Record<string, number>> = { hour: 3600, day: 86_400, week: 604_800 };

/** `hour`, `day` and `week` count from now, to the minute so that the same question has one address; anything else is a time. */
export function sinceTime(since: string | undefined, now = Date.now()): string | undefined {
  const seconds = since === undefined ? undefined : SINCE[since];
  if (seconds === undefined) return since;
  return new Date(Math.floor(now / 60_000) * 60_000 - seconds * 1000).toISOString();
}

export function loadRuns(search: RunsSearch, first: number, limit: number, signal: AbortSignal): Promise<RunPage> {
  const { sel: _, since, ...filters } = search;
  return get<RunPage>(address('/api/runs', { ...filters, since: sinceTime(since), first, limit }), signal);
}

export function loadFacets(signal: AbortSignal): Promise<RunPage> {
  return get<RunPage>(address('/api/runs', { limit: 1, facets: true }), signal);
}
