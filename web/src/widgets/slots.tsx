import { useNavigate } from '@tanstack/react-router';
import { createContext, type ReactNode, useContext, useEffect, useRef, useState } from 'react';
import { createPortal } from 'react-dom';
import { type Hint, useKeys } from '../base/keys';
import { useWords } from '../base/words';
import { Icon } from './Icon';
import { Kbd } from './text';

/** Places of the shell that the view in it fills: the foot and the search field. */
export interface Slots {
  readonly foot: HTMLElement | null;
  readonly finder: HTMLElement | null;
}

export const SlotsContext = createContext<Slots>({ foot: null, finder: null });

interface FootProps {
  readonly hints: readonly Hint[];
  readonly children?: ReactNode;
}

/** What the foot says while this view is shown: the keys that apply, and what is in view. */
export function Foot({ hints, children }: FootProps) {
  const { t } = useWords();
  const { foot } = useContext(SlotsContext);
  if (!foot) return null;
  return createPortal(
    <>
      {hints.map(hint => (
        <span key={hint.does}>
          <Kbd keys={hint.keys} />
          {t(hint.does)}
        </span>
      ))}
      <span className="grow" />
      {children}
    </>,
    foot,
  );
}

interface FinderProps {
  readonly label: string;
  readonly value: string;
  readonly onFind: (text: string) => void;
  readonly onType?: (text: string) => void;
}

/** The search field of the top bar, for what this view can find. `/` goes to it, Enter finds, Escape leaves. */
export function Finder({ label, value, onFind, onType }: FinderProps) {
  const { finder } = useContext(SlotsContext);
  const field = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useKeys({
    '/': () => {
      field.current?.focus();
      field.current?.select();
    },
  });
  if (!finder) return null;
  return createPortal(
    <form
      className="search"
      role="search"
      onSubmit={event => {
        event.preventDefault();
        onFind(text.trim());
        field.current?.blur();
      }}
    >
      <Icon sign="search" />
      <input
        ref={field}
        aria-label={label}
        placeholder={label}
        value={text}
        autoComplete="off"
        spellCheck={false}
        onChange={event => {
          setText(event.target.value);
          onType?.(event.target.value.trim());
        }}
        onKeyDown={event => {
          if (event.key === 'Escape') event.currentTarget.blur();
        }}
      />
      <kbd>/</kbd>
    </form>,
    finder,
  );
}

/** The same on a page that lists no runs: it finds them in their list. */
export function FindRuns() {
  const { t } = useWords();
  const navigate = useNavigate();
  return <Finder label={t('app.find')} value="" onFind={q => void navigate({ to: '/runs', search: { q } })} />;
}
