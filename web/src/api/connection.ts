import { useSyncExternalStore } from 'react';

let silentSince: Date | null = null;
let lastAnswer = new Date();
const listeners = new Set<() => void>();

function change(since: Date | null): void {
  if ((since === null) === (silentSince === null)) return;
  silentSince = since;
  for (const tell of listeners) tell();
}

/** The server said something: it is there. */
export function answered(): void {
  lastAnswer = new Date();
  change(null);
}

/** The server said nothing: what is shown is as old as its last answer. */
export function unanswered(): void {
  change(lastAnswer);
}

/** Since when the server has been silent; null while it answers. */
export function useSilence(): Date | null {
  return useSyncExternalStore(
    tell => {
      listeners.add(tell);
      return () => listeners.delete(tell);
    },
    () => silentSince,
  );
}
