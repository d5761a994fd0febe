import { type ReactNode, useEffect, useId, useRef } from 'react';
import { useKeys } from '../base/keys';
import { useWords } from '../base/words';
import { Icon, type Sign } from './Icon';

interface Choice<T extends string> {
  readonly value: T;
  readonly label: ReactNode;
  readonly lang?: string;
  readonly locked?: boolean;
}

interface SegProps<T extends string> {
  readonly label: string;
  readonly value: T;
  readonly choices: readonly Choice<T>[];
  readonly onChoose: (value: T) => void;
}

/** One of a few: the chosen part is pressed. */
export function Seg<T extends string>({ label, value, choices, onChoose }: SegProps<T>) {
  return (
    <div className="seg" role="group" aria-label={label}>
      {choices.map(choice => (
        <button
          key={choice.value}
          type="button"
          lang={choice.lang}
          disabled={choice.locked}
          aria-pressed={choice.value === value}
          onClick={() => onChoose(choice.value)}
        >
          {choice.label}
        </button>
      ))}
    </div>
  );
}

interface TabsProps<T extends string> {
  readonly label: string;
  readonly value: T;
  readonly tabs: readonly { readonly value: T; readonly label: string }[];
  readonly panel: string;
  readonly onChoose: (value: T) => void;
}

/** Tabs of one panel; arrows move between them. */
export function Tabs<T extends string>({ label, value, tabs, panel, onChoose }: TabsProps<T>) {
  const list = useRef<HTMLDivElement>(null);
  const go = (by: number) => {
    const at = (tabs.findIndex(tab => tab.value === value) + by + tabs.length) % tabs.length;
    const next = tabs[at];
    if (!next) return;
    onChoose(next.value);
    list.current?.querySelectorAll('button')[at]?.focus();
  };
  return (
    <div
      className="tabs"
      role="tablist"
      aria-label={label}
      ref={list}
      onKeyDown={event => {
        if (event.key === 'ArrowRight') go(1);
        if (event.key === 'ArrowLeft') go(-1);
      }}
    >
      {tabs.map(tab => (
        <button
          key={tab.value}
          type="button"
          role="tab"
          id={`${panel}-${tab.value}`}
          aria-selected={tab.value === value}
          aria-controls={panel}
          tabIndex={tab.value === value ? 0 : -1}
          onClick={() => onChoose(tab.value)}
        >
          {tab.label}
        </button>
      ))}
    </div>
  );
}

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ReactNode;
}

/** A dialog of the browser's own: it traps the focus and gives it back. What is marked `data-first` has it first. */
export function Dialog({ title, onClose, children }: DialogProps) {
  const { t } = useWords();
  const dialog = useRef<HTMLDialogElement>(null);
  const name = useId();
  useEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    shown?.querySelector<HTMLElement>('[data-first]')?.focus();
    return () => shown?.close();
  }, []);
  useKeys({ Escape: onClose }, true);
  return (
    <dialog ref={dialog} className="dialog" aria-labelledby={name} onCancel={onClose}>
      <div className="row">
        <h2 id={name} className="grow">
          {title}
        </h2>
        <button type="button" className="btn s q" onClick={onClose}>
          {t('app.close')}
        </button>
      </div>
      {children}
    </dialog>
  );
}

interface MenuProps {
  readonly label: ReactNode;
  readonly chosen?: ReactNode;
  readonly onClear?: (() => void) | undefined;
  readonly className?: string;
  readonly children: ReactNode;
}

/** A button that opens a list below itself; Escape and a click elsewhere close it. */
export function Menu({ label, chosen, onClear, className = 'chip', children }: MenuProps) {
  const { t } = useWords();
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const place = () => {
    const [at, shown] = [button.current?.getBoundingClientRect(), list.current];
    if (!at || !shown) return;
    const left = Math.min(at.left, window.innerWidth - shown.offsetWidth - 8);
    shown.style.left = `${Math.max(8, left)}px`;
    shown.style.top = `${at.bottom + 4}px`;
  };
  const move = (by: number) => {
    const items = [...(list.current?.querySelectorAll<HTMLElement>('button, a') ?? [])];
    const at = items.indexOf(document.activeElement as HTMLElement);
    items[(at + by + items.length) % items.length]?.focus();
  };
  return (
    <span className="menu">
      <button
        type="button"
        ref={button}
        className={`${className} ${chosen ? 'on' : ''}`}
        popoverTarget={id}
        aria-haspopup="menu"
      >
        {label} {chosen ? <b>{chosen}</b> : <Icon sign="down" />}
      </button>
      {chosen && onClear && (
        <button type="button" className="chip on x" onClick={onClear} aria-label={t('runs.clear')}>
          ×
        </button>
      )}
      <div
        id={id}
        ref={list}
        popover="auto"
        role="menu"
        tabIndex={-1}
        className="pop"
        onToggle={event => {
          if ((event as unknown as ToggleEvent).newState !== 'open') return;
          place();
          move(1);
        }}
        onClick={() => list.current?.hidePopover()}
        onKeyDown={event => {
          if (event.key === 'ArrowDown') move(1);
          if (event.key === 'ArrowUp') move(-1);
        }}
      >
        {children}
      </div>
    </span>
  );
}

interface ItemProps {
  readonly chosen?: boolean;
  readonly note?: ReactNode;
  readonly onChoose: () => void;
  readonly children: ReactNode;
}

/** One line of a menu. */
export function Item({ chosen = false, note, onChoose, children }: ItemProps) {
  return (
    <button type="button" role="menuitemradio" aria-checked={chosen} className="item" onClick={onChoose}>
      <span className="grow ell">{children}</span>
      {note !== undefined && <span className="dim">{note}</span>}
      {chosen && <Icon sign="check" />}
    </button>
  );
}

interface ChipProps {
  readonly on: boolean;
  readonly sign?: Sign;
  readonly onToggle: () => void;
  readonly children: ReactNode;
}

/** A filter that is on or off. */
export function Chip({ on, sign, onToggle, children }: ChipProps) {
  return (
    <button type="button" className={on ? 'chip on' : 'chip'} aria-pressed={on} onClick={onToggle}>
      {sign && <Icon sign={sign} />}
      {children}
    </button>
  );
}

interface CutLineProps {
  readonly step: number;
  readonly children?: ReactNode;
}

/** Where the kept prefix ends and the new part begins. */
export function CutLine({ step, children }: CutLineProps) {
  const { t } = useWords();
  return (
    <div className="cut">
      <span className="lead" />
      <span className="n">
        <Icon sign="fork" />
        {t('card.cut', { step })}
      </span>
      {children && <span className="t2 ell">{children}</span>}
      <span className="grow bare" />
      <span className="hide-n">{t('card.new')}</span>
    </div>
  );
}

interface TurningProps {
  readonly first: number;
  /** How many stand on one page. */
  readonly size: number;
  readonly total: number;
  readonly onTurn: (first: number) => void;
}

/** Pages of a list, newest first: where one is, and the way to newer and older ones. */
export function Turning({ first, size, total, onTurn }: TurningProps) {
  const { t } = useWords();
  const last = Math.min(first + size, total);
  return (
    <>
      <span className="note">{t('jobs.rows', { first: first + 1, last, total })}</span>
      <button type="button" className="btn s" disabled={first === 0} onClick={() => onTurn(Math.max(0, first - size))}>
        {t('jobs.newer')}
      </button>
      <button type="button" className="btn s" disabled={last >= total} onClick={() => onTurn(first + size)}>
        {t('jobs.older')}
      </button>
    </>
  );
}
