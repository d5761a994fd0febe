import { hashKey, type QueryKey, useQueries } from '@tanstack/react-query';
import { useCallback, useRef, useState } from 'react';
import type { Page } from './types';

export interface Pages<T> {
  /** How many there are in all; undefined until the server said so. */
  readonly total: number | undefined;
  readonly at: (index: number) => T | undefined;
  readonly error: Error | null;
  readonly again: () => void;
  /** Tell which items are in view; their pages are fetched. */
  readonly look: (first: number, last: number) => void;
}

interface PagesOptions<T, P extends Page<T>> {
  readonly key: QueryKey;
  readonly size: number;
  readonly load: (first: number, limit: number, signal: AbortSignal) => Promise<P>;
  /** Milliseconds after which what is in view is asked for again. */
  readonly every?: number | false;
}

/** A long list of the server, of which the pages in view are fetched and kept. */
export function usePages<T, P extends Page<T> = Page<T>>({
  key,
  size,
  load,
  every = false,
}: PagesOptions<T, P>): Pages<T> {
  const [range, setRange] = useState<readonly [number, number]>([0, 0]);
  const look = useCallback(
    (first: number, last: number) => {
      const next = [Math.floor(Math.max(0, first) / size), Math.floor(Math.max(0, last) / size)] as const;
      setRange(before => (before[0] === next[0] && before[1] === next[1] ? before : next));
    },
    [size],
  );
  const numbers = Array.from({ length: range[1] - range[0] + 1 }, (_, at) => range[0] + at);
  const found = useQueries({
    queries: numbers.map(number => ({
      queryKey: [...key, 'page', number],
      queryFn: ({ signal }: { signal: AbortSignal }) => load(number * size, size, signal),
      refetchInterval: every,
    })),
  });
  const known = found.map(one => one.data);
  // A list does not become empty while a page of it is on its way: its rows would jump to the top and back.
  const latest = useRef<{ readonly of: string; readonly page: Page<T> }>(undefined);
  const of = hashKey(key);
  const page = known.find(one => one !== undefined) ?? (latest.current?.of === of ? latest.current.page : undefined);
  if (page) latest.current = { of, page };
  return {
    total: page?.total,
    at: index => known[Math.floor(index / size) - range[0]]?.items[index % size],
    error: found.find(one => one.error && !one.data)?.error ?? null,
    again: () => found.forEach(one => void one.refetch()),
    look,
  };
}
