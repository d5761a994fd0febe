import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { address, get, getText, path } from '../../api/client';
import type { Card, Page, StepHeader } from '../../api/types';
import { indentJson } from '../../base/json';

const CARDS = 30;

/** The cards up to a step, the nearest first; further pages lie before them. */
export function useCardsBefore(run: string, step: number) {
  return useInfiniteQuery({
    queryKey: ['run', run, 'before', step],
    initialPageParam: -1,
    queryFn: async ({ pageParam, signal }) => {
      const at = pageParam < 0 ? { around: step, limit: 2 * CARDS } : { first: pageParam, limit: CARDS };
      return get<Page<Card>>(address(path`/api/runs/${run}/transcript`, at), signal);
    },
    getNextPageParam: last => (last.first > 0 ? Math.max(0, last.first - CARDS) : undefined),
  });
}

/** The recorded result of a step as text; it is fetched when it is wanted. */
export function useResult(run: string, step: number, wanted: boolean) {
  return useQuery({
    queryKey: ['run', run, 'step', step, 'raw', 'output'],
    queryFn: async ({ signal }) => indentJson(await getText(path`/api/runs/${run}/steps/${step}/raw/output`, signal)),
    enabled: wanted,
  });
}

/** Headers around a step. */
export function useRoad(run: string, step: number, most: number) {
  const first = Math.max(0, step - Math.floor(most / 2));
  return useQuery({
    queryKey: ['run', run, 'road', first],
    queryFn: ({ signal }) =>
      get<Page<StepHeader>>(address(path`/api/runs/${run}/steps`, { first, limit: most }), signal),
  });
}
