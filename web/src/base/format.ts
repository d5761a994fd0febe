import type { Language } from './words';

/** An amount as exact decimal text: at most 6 places, at least 2, grouped; null is unknown and never 0. */
export function money(amount: string | null | undefined): string | null {
  const parts = amount == null ? null : /^(-?)(\d+)(?:\.(\d+))?$/.exec(amount);
  if (!parts) return amount == null ? null : amount;
  const [, sign = '', whole = '0', places = ''] = parts;
  const kept = places.slice(0, 6).replace(/0+$/, '').padEnd(2, '0');
  if (/^0*$/.test(whole + kept) && /[1-9]/.test(places)) return `<${sign}0.000001`;
  return `${sign}${grouped(whole)}.${kept}`;
}

export function dollars(amount: string | null | undefined): string | null {
  const text = money(amount);
  if (text === null) return null;
  return text.startsWith('<') ? `<$${text.slice(1)}` : text.startsWith('-') ? `-$${text.slice(1)}` : `$${text}`;
}

/** Digits of any length with separators. */
function grouped(digits: string): string {
  return digits.replace(/\B(?=(\d{3})+$)/g, ',');
}

export function count(value: number | bigint | null | undefined, language: Language): string | null {
  return value == null ? null : new Intl.NumberFormat(language).format(value);
}

export const UNITS: Readonly<Record<Language, { ms: string; s: string; m: string; h: string }>> = {
  en: { ms: 'ms', s: 's', m: 'm', h: 'h' },
  'zh-CN': { ms: '毫秒', s: '秒', m: '分', h: '时' },
};

/** `35 ms`, `7.62 s`, `18 m 04 s`, `2 h 05 m`; null while it is not known. */
export function duration(seconds: number | null | undefined, language: Language): string | null {
  if (seconds == null) return null;
  const unit = UNITS[language];
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ${unit.ms}`;
  if (seconds < 59.995) return `${seconds.toFixed(2)} ${unit.s}`;
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (value: number) => String(value).padStart(2, '0');
  return hours ? `${hours} ${unit.h} ${two(minutes)} ${unit.m}` : `${minutes} ${unit.m} ${two(rest)} ${unit.s}`;
}

/** `+1.204`: seconds after something, or before it. */
export function signedSeconds(seconds: number): string {
  return `${seconds < 0 ? '−' : '+'}${Math.abs(seconds).toFixed(3)}`;
}

/** Clock time of today, else date and time; in the reader's time zone. */
export function moment(iso: string | null | undefined, language: Language, now = new Date()): string | null {
  if (!iso) return null;
  const when = new Date(iso);
  if (Number.isNaN(when.getTime())) return iso;
  const clock: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' };
  if (when.toDateString() === now.toDateString()) return new Intl.DateTimeFormat(language, clock).format(when);
  const day: Intl.DateTimeFormatOptions = {
    month: 'short',
    day: 'numeric',
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23',
  };
  const year: Intl.DateTimeFormatOptions = when.getFullYear() === now.getFullYear() ? {} : { year: 'numeric' };
  return new Intl.DateTimeFormat(language, { ...day, ...year }).format(when);
}

/** The time zone that every time on the page is in, as the language names it. */
export function zone(language: Language, when = new Date()): string {
  const parts = new Intl.DateTimeFormat(language, { timeZoneName: 'short' }).formatToParts(when);
  return parts.find(part => part.type === 'timeZoneName')?.value ?? 'UTC';
}

/** The part of an id that tells runs of a family apart. */
export function shortId(id: string): string {
  const fork = id.lastIndexOf('-fork-');
  return fork >= 0 ? id.slice(fork + 6) : id.slice(id.lastIndexOf('-') + 1);
}
