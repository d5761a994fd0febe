import { describe, expect, it } from 'vitest';
import { nameOf, takesText } from './keys';

const press = (key: string, held: Partial<KeyboardEvent> = {}) =>
  nameOf({ key, ctrlKey: false, metaKey: false, altKey: false, ...held });

describe('keys', () => {
  it('have the names that bindings use, on every kind of keyboard', () => {
    expect([press('j'), press(' '), press('?')]).toEqual(['j', 'Space', '?']);
    expect(press('Enter', { metaKey: true })).toBe('Ctrl+Enter');
    expect(press('ArrowUp', { altKey: true })).toBe('Alt+ArrowUp');
  });

  it('are letters where something can be typed', () => {
    const made = (name: string, type?: string) => Object.assign(document.createElement(name), type ? { type } : {});
    expect([made('textarea'), made('select'), made('input', 'text')].every(takesText)).toBe(true);
    expect([made('button'), made('input', 'checkbox'), made('div'), null].some(takesText)).toBe(false);
  });
});
