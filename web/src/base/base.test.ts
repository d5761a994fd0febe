import { describe, expect, it } from 'vitest';
import { dollars, duration, moment, money, shortId } from './format';
import { indentJson, jsonFault, jsonText, parseJson } from './json';
import { pieces, plain } from './visible';

describe('money', () => {
  it.each([
    ['0.0149', '0.0149'],
    ['0.5', '0.50'],
    ['3', '3.00'],
    ['1234567.1', '1,234,567.10'],
    ['0.12345678901234567890', '0.123456'],
    ['12345678901234567890.10', '12,345,678,901,234,567,890.10'],
    ['0.00000004', '<0.000001'],
    ['0', '0.00'],
    ['-2.25', '-2.25'],
  ])('%s is shown as %s', (amount, shown) => expect(money(amount)).toBe(shown));

  it('knows that unknown is not zero', () => {
    expect(money(null)).toBeNull();
    expect(dollars(undefined)).toBeNull();
    expect(dollars('0.00000004')).toBe('<$0.000001');
    expect(dollars('-2')).toBe('-$2.00');
  });
});

describe('times', () => {
  it.each([
    [0.0346, '35 ms'],
    [0.9996, '1.00 s'],
    [7.62, '7.62 s'],
    [59.999, '1 m 00 s'],
    [1084, '18 m 04 s'],
    [7500, '2 h 05 m'],
  ])('%d seconds are %s', (seconds, shown) => expect(duration(seconds, 'en')).toBe(shown));

  it('says an unknown time is unknown', () => expect(duration(null, 'en')).toBeNull());

  it('leaves text that is no time as it is', () => expect(moment('soon', 'en')).toBe('soon'));

  it('adds the date to what was not today', () => {
    const now = new Date('2026-03-02T12:00:00Z');
    expect(moment('2026-02-27T12:00:00Z', 'en', now)).toContain('Feb 27');
    expect(moment('2025-02-27T12:00:00Z', 'en', now)).toContain('2025');
  });
});

describe('ids', () => {
  it('keeps what tells forks apart', () => {
    expect(shortId('shop-260301-abc234-fork-3d91ac')).toBe('3d91ac');
    expect(shortId('shop-260301-abc234')).toBe('abc234');
    expect(shortId('plain')).toBe('plain');
  });
});

describe('JSON', () => {
  it('loses no digit of an integer', () => {
    const text = '{"id":9007199254740993,"n":[1,-18446744073709551615],"f":0.1}';
    expect(parseJson(text)).toEqual({ id: 9007199254740993n, n: [1, -18446744073709551615n], f: 0.1 });
    expect(jsonText(parseJson(text))).toBe(text);
  });

  it('names a number that would become null, where it stands', () => {
    expect(jsonFault('{"1e999": [1,\n 1e999]}')).toEqual({ line: 2, column: 2, said: 'Number too large' });
    expect(jsonFault('[1e308, 123456789012345678901234567890]')).toBeNull();
  });

  it('takes keys that mean something to JavaScript as keys', () => {
    const text = '{"constructor":1,"toString":2}';
    expect(jsonText(parseJson(text))).toBe(text);
  });

  it.each([
    ['{"a":[1,2],"b":{}}', '{\n  "a": [\n    1,\n    2\n  ],\n  "b": {}\n}'],
    ['[ ]', '[]'],
    ['"a{b,c:\\"d\\""', '"a{b,c:\\"d\\""'],
    ['1.0', '1.0'],
    ['{"x":1e400,"y":-0.0,"z":12345678901234567890}', '{\n  "x": 1e400,\n  "y": -0.0,\n  "z": 12345678901234567890\n}'],
    ['{"a":"x\\\\","b":"\\"{,"}', '{\n  "a": "x\\\\",\n  "b": "\\"{,"\n}'],
    ['["cut \\" off', '[\n  "cut \\" off'],
  ])('%s is indented without changing a token', (text, shown) => expect(indentJson(text)).toBe(shown));

  it('goes through a string of any length', () => {
    const long = `"${'x\\"'.repeat(4_000_000)}"`;
    expect(indentJson(long) === long).toBe(true);
  });
});

describe('text of a run', () => {
  it('shows what cannot be seen', () => {
    expect(pieces('a\u202eb\u0000')).toEqual([
      { text: 'a' },
      { sign: '202E', code: 'U+202E' },
      { text: 'b' },
      { sign: '0000', code: 'U+0000' },
    ]);
  });

  it('leaves words of any script, line breaks and emoji alone', () => {
    const text = 'Zeile\n\tשלום 你好 😀 👨\u200d👩';
    expect(pieces(text)).toEqual([{ text }]);
  });

  it('shows halves of a pair and hidden tags', () => {
    expect(pieces('\ud800x')).toEqual([{ sign: 'D800', code: 'U+D800' }, { text: 'x' }]);
    expect(pieces('\u{e0041}')).toEqual([{ sign: 'E0041', code: 'U+E0041' }]);
  });

  it('is told with codes where there is room for text only', () => {
    expect(plain('a\u202eb')).toBe('a[U+202E]b');
  });

  it('is one empty piece when it is empty', () => expect(pieces('')).toEqual([{ text: '' }]));
});
