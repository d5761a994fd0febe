import { useEffect, useRef } from 'react';
import { parseJson } from '../base/json';
import { answered, unanswered } from './connection';

type Handlers = Readonly<Record<string, (data: unknown) => void>>;

const AGAIN = 2000;

/**
 * Listen to a stream of the server while `target` is not null. The browser reopens a broken stream with the id that it
 * heard last; a stream that the server refused is asked for again after a pause. `end` closes it.
 */
export function useStream(target: string | null, handlers: Handlers): void {
  const current = useRef(handlers);
  useEffect(() => {
    current.current = handlers;
  });
  const names = Object.keys(handlers).sort().join(' ');
  useEffect(() => (target === null ? undefined : listen(target, names.split(' '), current)), [target, names]);
}

function listen(target: string, names: readonly string[], current: { readonly current: Handlers }): () => void {
  let source: EventSource | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const open = () => {
    source = new EventSource(target);
    source.onopen = answered;
    source.onerror = () => {
      if (source?.readyState !== EventSource.CLOSED) return unanswered();
      timer = setTimeout(open, AGAIN);
    };
    for (const name of new Set([...names, 'end'])) {
      source.addEventListener(name, event => {
        if (name === 'end') source?.close();
        current.current[name]?.(event.data ? parseJson(event.data as string) : null);
      });
    }
  };
  open();
  return () => {
    clearTimeout(timer);
    source?.close();
  };
}
