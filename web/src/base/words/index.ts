import { createContext, useContext } from 'react';
import { en } from './en';
import { zh } from './zh';

export type WordKey = keyof typeof en;
/** A phrase, or its singular and plural. */
export type Phrase = string | readonly [one: string, many: string];
export type Words = Readonly<Record<WordKey, Phrase>>;
export type Language = 'en' | 'zh-CN';

export const LANGUAGES: Readonly<Record<Language, { readonly name: string; readonly words: Words }>> = {
  en: { name: 'EN', words: en },
  'zh-CN': { name: '中文', words: zh },
};

type Values = Readonly<Record<string, string | number>>;
export type Say = (key: WordKey, values?: Values) => string;

/** The phrase of `key` with its places filled; `n` chooses between one and many, numbers are written as the language writes them. */
export function speaker(language: Language): Say {
  const { words } = LANGUAGES[language];
  const plural = new Intl.PluralRules(language);
  const numbers = new Intl.NumberFormat(language);
  return (key, values = {}) => {
    const phrase = words[key];
    const text = typeof phrase === 'string' ? phrase : phrase[isOne(values['n'], plural) ? 0 : 1];
    return text.replace(/\{(\w+)\}/g, (whole, name: string) => {
      const value = values[name];
      if (value === undefined) return whole;
      return typeof value === 'number' ? numbers.format(value) : value;
    });
  };
}

function isOne(n: string | number | undefined, plural: Intl.PluralRules): boolean {
  return typeof n === 'number' && plural.select(n) === 'one';
}

export interface Speech {
  readonly language: Language;
  readonly t: Say;
}

export const SpeechContext = createContext<Speech>({ language: 'en', t: speaker('en') });

/** The words of the language that the page speaks now. */
export function useWords(): Speech {
  return useContext(SpeechContext);
}
