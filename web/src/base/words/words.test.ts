import { describe, expect, it } from 'vitest';
import { en } from './en';
import { type Phrase, speaker, type WordKey } from './index';
import { zh } from './zh';

const keys = Object.keys(en) as WordKey[];
const places = (phrase: Phrase) =>
  [...new Set([phrase].flat().flatMap(text => [...text.matchAll(/\{(\w+)\}/g)].map(found => found[1])))].sort();

describe('words', () => {
  it.each(keys)('%s has the same places in both languages', key => {
    const optional = (found: (string | undefined)[]) => found.filter(name => name !== 'n');
    const [english, chinese]: [Phrase, Phrase] = [en[key], zh[key]];
    expect(optional(places(chinese))).toEqual(optional(places(english)));
  });

  it('speaks Chinese in Chinese', () => {
    const latin = keys.filter(key => [zh[key] as Phrase].flat().every(text => !/[\u4e00-\u9fff×{]/.test(text)));
    expect(latin).toEqual([]);
  });

  it('uses no word that would blame or cheer', () => {
    const texts = keys.flatMap(key => [en[key] as Phrase].flat());
    expect(texts.filter(text => /!|oops|sorry|please/i.test(text))).toEqual([]);
  });

  it('chooses singular and plural by n, and writes numbers as the language does', () => {
    const t = speaker('en');
    expect(t('source.misses', { n: 1 })).toBe('1 miss');
    expect(t('source.misses', { n: 1200 })).toBe('1,200 misses');
    expect(speaker('zh-CN')('source.misses', { n: 1 })).toBe('1 次未命中');
  });

  it('leaves a place that nobody fills, so that it is seen', () => {
    expect(speaker('en')('step.title')).toBe('Step {step}');
  });
});
