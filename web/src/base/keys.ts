import { createContext, useContext, useEffect, useRef } from 'react';
import type { WordKey } from './words';

/** What the keys of a view do; `Ctrl+Enter`, `Alt+ArrowUp`, `?` and the like are names of keys. */
export type Bindings = Readonly<Record<string, () => void>>;

/** One entry of the foot: keys and the word that says what they do. */
export interface Hint {
  readonly keys: readonly string[];
  readonly does: WordKey;
}

/** Whether single keys do something; a setting of the reader. */
export const SingleKeys = createContext(true);

/** `Ctrl+Enter`, `j`, `?`: the name of the key that was pressed, as bindings call it. */
export function nameOf(event: Pick<KeyboardEvent, 'key' | 'ctrlKey' | 'metaKey' | 'altKey'>): string {
  const name = event.key === ' ' ? 'Space' : event.key;
  return `${event.ctrlKey || event.metaKey ? 'Ctrl+' : ''}${event.altKey ? 'Alt+' : ''}${name}`;
}

/** Whether this element takes letters, so that single keys must be off. */
export function takesText(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !['checkbox', 'radio', 'button', 'range'].includes(target.type);
  return target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

/** A control that has its own meaning for these keys keeps them. */
function ownKey(target: EventTarget | null, name: string): boolean {
  if (!(target instanceof Element)) return false;
  if (name === 'Enter' || name === 'Space') return target.closest('button, a, summary, [role=menuitem]') !== null;
  return name.startsWith('Arrow') && target.closest('[role=tablist], [role=menu], [role=listbox]') !== null;
}

/** Bind keys while the caller is shown. Behind an open dialog nothing is bound. */
export function useKeys(bindings: Bindings, inDialog = false): void {
  const single = useContext(SingleKeys);
  const current = useRef(bindings);
  useEffect(() => {
    current.current = bindings;
  });
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const name = nameOf(event);
      const does = current.current[name];
      if (!does || event.defaultPrevented || ownKey(event.target, name)) return;
      if (!inDialog && document.querySelector('dialog[open]')) return;
      const chord = name.startsWith('Ctrl+') || name.startsWith('Alt+');
      if ((name.length === 1 && !single) || (takesText(event.target) && !chord && name !== 'Escape')) return;
      event.preventDefault();
      does();
    };
    window.addEventListener('keydown', pressed);
    return () => window.removeEventListener('keydown', pressed);
  }, [single, inDialog]);
}
