import { createContext, useCallback, useContext, useState } from 'react';
import { LANGUAGES, type Language } from './words';

export type Theme = 'light' | 'dark';

/** A value that this browser keeps, if it keeps anything. */
function kept(name: string): string | null {
  try {
    return localStorage.getItem(`loupe-${name}`);
  } catch {
    return null;
  }
}

function keep(name: string, value: string): void {
  try {
    localStorage.setItem(`loupe-${name}`, value);
  } catch {
    // A browser that keeps nothing forgets it with the tab.
  }
}

/** The name under which this reader answers for what they say. */
export const keptWho = (): string => kept('who') ?? '';
export const keepWho = (who: string): void => keep('who', who);

function firstLanguage(): Language {
  const asked = new URLSearchParams(location.search).get('lang') ?? kept('language') ?? navigator.language;
  if (asked in LANGUAGES) return asked as Language;
  return asked.startsWith('zh') ? 'zh-CN' : 'en';
}

/** What the reader chose, kept in this browser; `?lang=` and `?theme=` in an address come first. */
export function useReader() {
  const [language, setLanguage] = useState(firstLanguage);
  const [theme, setTheme] = useState<Theme>(document.documentElement.dataset['theme'] === 'dark' ? 'dark' : 'light');
  const [singleKeys, setSingleKeys] = useState(kept('keys') !== 'off');
  const chooseLanguage = useCallback((next: Language) => {
    keep('language', next);
    setLanguage(next);
  }, []);
  const chooseTheme = useCallback((next: Theme) => {
    document.documentElement.dataset['theme'] = next;
    keep('theme', next);
    setTheme(next);
  }, []);
  const chooseSingleKeys = useCallback((on: boolean) => {
    keep('keys', on ? 'on' : 'off');
    setSingleKeys(on);
  }, []);
  return { language, chooseLanguage, theme, chooseTheme, singleKeys, chooseSingleKeys };
}

export type Reader = ReturnType<typeof useReader>;

export const ReaderContext = createContext<Reader | null>(null);

/** What the reader chose, and how it is changed; inside the shell only. */
export function useChoices(): Reader {
  const reader = useContext(ReaderContext);
  if (!reader) throw new Error('outside the shell');
  return reader;
}
