import { describe, expect, it } from 'vitest';
import type { ForkDialog } from '../api/types';
import { bodyOf, changes, EMPTY, messagesIn, messageText, sound } from './draft';

const REQUEST =
  '{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi","id":9007199254740993}]}';
const dialog = { from_step: 3, request: REQUEST, system_prompt: 'Be brief.' } as ForkDialog;

describe('a draft', () => {
  it('sends nothing that was not changed', () => {
    const body = bodyOf({ ...EMPTY, prompt: 'Be brief.', parameters: { temperature: ' ' }, limits: {} }, dialog);
    expect(body).toMatchObject({
      overrides: {},
      live_tools: false,
      tools: {},
      limits: {},
      endpoint: null,
      from_step: 3,
    });
  });

  it('sends what was', () => {
    const draft = { ...EMPTY, prompt: '', parameters: { model: 'other', temperature: '0.7', seed: '7' } };
    expect(bodyOf(draft, dialog)).toMatchObject({
      overrides: { system_prompt: '', model: 'other', temperature: 0.7, seed: 7 },
      limits: { max_steps: 12 },
    });
    expect(changes(draft, dialog)).toEqual(['system_prompt', 'model', 'temperature', 'seed']);
  });

  it('keeps every digit of a message that it changes, and leaves out one that only looks different', () => {
    const [system, user] = messagesIn(REQUEST);
    const text = messageText(user).replace('Hi', 'Ho');
    const draft = { ...EMPTY, messages: { 0: messageText(system), 1: text } };
    const { overrides } = bodyOf(draft, dialog) as { overrides: { messages: unknown[] } };
    expect(overrides.messages).toEqual([
      { index: 1, op: 'set', message: { role: 'user', content: 'Ho', id: 9007199254740993n } },
    ]);
  });

  it('is not sound while a message is no JSON', () => {
    expect(sound({ ...EMPTY, messages: { 1: '{' } })).toBe(false);
    expect(sound(EMPTY)).toBe(true);
    expect(bodyOf({ ...EMPTY, messages: { 1: '{' } }, dialog)).toMatchObject({ overrides: {} });
  });

  it('runs nothing live unless live is on, and then says why', () => {
    const draft = {
      ...EMPTY,
      policies: { calc: 'live', mail: 'human', look: 'cassette' },
      reasons: { calc: 'no effect ' },
    };
    expect(bodyOf(draft, dialog)).toMatchObject({ live_tools: false, tools: { mail: 'human' } });
    expect(bodyOf({ ...draft, live: true }, dialog)).toMatchObject({
      live_tools: [{ name: 'calc', reason: 'no effect' }],
      tools: { mail: 'human' },
    });
  });

  it('sends money as the text that was typed', () => {
    expect(bodyOf({ ...EMPTY, limits: { max_cost: '0.20', max_seconds: '120' } }, dialog)).toMatchObject({
      limits: { max_cost: '0.20', max_seconds: 120 },
    });
  });
});
