import { useQuery } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { get } from '../api/client';
import type { About } from '../api/types';
import { useWords } from '../base/words';
import { Strip } from '../widgets/states';

const ASK_AGAIN = 60_000;

/** Whether the server has another build of the page than the one that is shown; unknown ones are none. */
export function isOlder(mine: string | null | undefined, served: string | null | undefined): boolean {
  return Boolean(mine && served && served !== 'unknown' && mine !== served);
}

/** Says that this page is older than its server, and loads the new one. */
export function Older() {
  const { t } = useWords();
  const about = useQuery({
    queryKey: ['about'],
    queryFn: ({ signal }) => get<About>('/api/about', signal),
    refetchInterval: ASK_AGAIN,
  });
  const [lacking, setLacking] = useState(false);
  useEffect(() => {
    // A part of this build that the server no longer has.
    const missed = () => setLacking(true);
    window.addEventListener('vite:preloadError', missed);
    return () => window.removeEventListener('vite:preloadError', missed);
  }, []);
  const mine = document.querySelector<HTMLMetaElement>('meta[name="page-version"]')?.content;
  if (!lacking && !isOlder(mine, about.data?.page)) return null;
  return (
    <Strip
      look="plain"
      actions={
        <button type="button" className="btn s" onClick={() => window.location.reload()}>
          {t('app.reload')}
        </button>
      }
    >
      <b>{t('app.older')}</b> {t('app.olderSay')}
    </Strip>
  );
}
