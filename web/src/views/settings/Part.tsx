import type { ReactNode } from 'react';
import { useWords } from '../../base/words';

/** One box of the page of settings. */
export function Part({ title, wide = false, children }: { title: string; wide?: boolean; children: ReactNode }) {
  return (
    <section className={wide ? 'box wide' : 'box'} aria-label={title}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

export function NotSet() {
  const { t } = useWords();
  return <span className="dim">{t('fork.notSet')}</span>;
}
