import { queryOptions, useQuery, useQueryClient } from '@tanstack/react-query';
import { address, get, path } from '../../api/client';
import { type Pages, usePages } from '../../api/pages';
import type { Card, Minimap, Page, RunDetail, StepHeader, Verdict } from '../../api/types';
import { cardFor } from '../../model/cards';

const STEPS = 500;
const CARDS = 50;

export function runQuery(id: string) {
  return queryOptions({
    queryKey: ['run', id],
    queryFn: ({ signal }) => get<RunDetail>(path`/api/runs/${id}`, signal),
  });
}

/** Headers of the steps of a run, of which those looked at are fetched. */
export function useSteps(id: string): Pages<StepHeader> {
  return usePages<StepHeader>({
    key: ['run', id, 'steps'],
    size: STEPS,
    load: (first, limit, signal) =>
      get<Page<StepHeader>>(address(path`/api/runs/${id}/steps`, { first, limit }), signal),
  });
}

/** Cards of the transcript, or of what lies inside one of its steps. */
export function useCards(id: string, openKept: boolean, inside?: number): Pages<Card> {
  const fold_kept = !openKept;
  return usePages<Card>({
    key: ['run', id, 'transcript', fold_kept, inside ?? null],
    size: CARDS,
    load: (first, limit, signal) =>
      get<Page<Card>>(address(path`/api/runs/${id}/transcript`, { first, limit, fold_kept, inside }), signal),
  });
}

/** The number of the card that covers a step, asked of the server. */
export async function cardOf(id: string, step: number, openKept: boolean): Promise<number | null> {
  const query = { around: step, limit: CARDS, fold_kept: !openKept };
  const page = await get<Page<Card>>(address(path`/api/runs/${id}/transcript`, query));
  const found = cardFor(page.items, step);
  return found < 0 ? null : page.first + found;
}

const COLUMNS = 700;

export function useMinimap(id: string, shown: boolean) {
  return useQuery({
    queryKey: ['run', id, 'minimap'],
    queryFn: ({ signal }) => get<Minimap>(address(path`/api/runs/${id}/minimap`, { columns: COLUMNS }), signal),
    enabled: shown,
  });
}

export interface EvidenceOf {
  /** What the last check found; null: nobody has looked since the run's last event. */
  readonly verdict: Verdict | null;
  readonly checking: boolean;
  readonly error: Error | null;
  readonly check: () => void;
}

/** Whether the evidence of a run is whole: what the server found last, and a way to look again. */
export function useEvidence(run: RunDetail): EvidenceOf {
  const queries = useQueryClient();
  const found = useQuery({
    queryKey: ['run', run.id, 'verify', run.events],
    queryFn: async ({ signal }) => {
      const verdict = await get<Verdict>(path`/api/runs/${run.id}/verify`, signal);
      void queries.invalidateQueries({ queryKey: ['run', run.id], exact: true });
      return verdict;
    },
    enabled: false,
    staleTime: Number.POSITIVE_INFINITY,
  });
  return {
    verdict: found.data ?? run.verdict,
    checking: found.isFetching,
    error: found.error,
    check: () => void found.refetch(),
  };
}
