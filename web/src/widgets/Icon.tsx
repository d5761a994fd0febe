import type { ReactNode } from 'react';

/** Signs on a 16 px grid, drawn with the colour of the text. */
const SIGNS = {
  fork: ['M1.5 7.5h13', 'M8 1v1M8 4v1', 'M8 7.5V14M5.5 11.7 8 14.2l2.5-2.5'],
  live: ['M3.6 3.6a6.2 6.2 0 0 0 0 8.8M12.4 3.6a6.2 6.2 0 0 1 0 8.8'],
  cassette: ['M3 3.5h10a1.5 1.5 0 0 1 1.5 1.5v6a1.5 1.5 0 0 1-1.5 1.5H3A1.5 1.5 0 0 1 1.5 11V5A1.5 1.5 0 0 1 3 3.5z'],
  miss: ['M8 5.2v3.4M8 10.8v.1'],
  error: ['m5.8 5.8 4.4 4.4M10.2 5.8l-4.4 4.4', 'M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8z'],
  kept: ['M2.5 2.5h11v11h-11z', 'm2.5 8 5.5-5.5M2.5 13.5l11-11M8 13.5 13.5 8'],
  check: ['m3 8.5 3.4 3.4L13 4.8'],
  chain: [
    'M6.6 9.4a2.6 2.6 0 0 0 3.7 0l2.4-2.4A2.6 2.6 0 0 0 9 3.3l-.8.8M9.4 6.6a2.6 2.6 0 0 0-3.7 0L3.3 9A2.6 2.6 0 0 0 7 12.7l.8-.8',
  ],
  search: ['M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9z', 'm10.5 10.5 3.5 3.5'],
  warn: ['M8 2 14.5 13.5h-13zM8 6.5v3M8 11.5v.1'],
  info: ['M8 1.8a6.2 6.2 0 1 1 0 12.4A6.2 6.2 0 0 1 8 1.8z', 'M8 7.4v3.6M8 5v.1'],
  right: ['m6 3.5 4.5 4.5L6 12.5'],
  down: ['M3.5 6 8 10.5 12.5 6'],
  case: ['M4 1.8h8v12.4L8 11.4l-4 2.8z'],
  lock: ['M3 7h10v7H3z', 'M5.2 7V5a2.8 2.8 0 0 1 5.6 0v2'],
  run: ['M8 2a6 6 0 1 1-5.2 3'],
  int: ['M8 1.5v5M8 9.5v5', 'M4 8h8'],
  pause: ['M5.5 3v10M10.5 3v10'],
  flag: ['M4 14.5v-12h8.5l-2 3 2 3H4'],
  copy: ['M5.5 5.5h8v8h-8z', 'M3 10.5h-.5v-8h8V3'],
} as const satisfies Readonly<Record<string, readonly string[]>>;

export type Sign = keyof typeof SIGNS;

const MORE: Partial<Readonly<Record<Sign, ReactNode>>> = {
  live: <circle cx="8" cy="8" r="3" fill="currentColor" />,
  cassette: (
    <>
      <circle cx="5.5" cy="8" r="1.3" />
      <circle cx="10.5" cy="8" r="1.3" />
    </>
  ),
  miss: <path d="M8 1.8 14.2 8 8 14.2 1.8 8z" strokeDasharray="2.6 1.8" />,
};

/** A sign that stands beside a word; readers of the screen hear the word only. */
export function Icon({ sign, className = '' }: { readonly sign: Sign; readonly className?: string }) {
  return (
    <svg className={`i ${className}`} viewBox="0 0 16 16" aria-hidden="true">
      {SIGNS[sign].map(d => (
        <path key={d} d={d} />
      ))}
      {MORE[sign]}
    </svg>
  );
}

/** The mark: a lens cut in half, the lower half new. */
export function Mark() {
  return (
    <svg viewBox="0 0 24 24" aria-hidden="true">
      <path d="M2.6 12a7.9 7.9 0 0 0 15.8 0z" fill="var(--accent)" />
      <circle cx="10.5" cy="12" r="7.9" fill="none" stroke="currentColor" strokeWidth="2" />
      <path d="M2 12h21" stroke="currentColor" strokeWidth="2" strokeLinecap="round" />
    </svg>
  );
}

/** The loupe that sits on a cut. */
export function CutDot() {
  return (
    <svg viewBox="0 0 16 16" aria-hidden="true">
      <path d="M2.5 8a5.5 5.5 0 0 0 11 0z" fill="currentColor" />
      <circle cx="8" cy="8" r="5.5" fill="none" stroke="currentColor" strokeWidth="2" />
    </svg>
  );
}
