import { describe, expect, it } from 'vitest';
import { EMPTY_WORD, settleBody, settleFault, type Word } from './settle';

const WORD: Word = { ...EMPTY_WORD, outcome: 'finished', why: ' the list has it ', by: 'anna' };

describe('a word about an effect', () => {
  it.each([
    [EMPTY_WORD, 'effects.bad.outcome'],
    [{ ...WORD, result: '{' }, 'effects.bad.result'],
    [{ ...WORD, why: ' ' }, 'effects.bad.why'],
    [{ ...WORD, by: '' }, 'effects.bad.by'],
    [WORD, null],
    [{ ...WORD, outcome: 'failed', result: '{' }, null],
  ] as const)('is not sent before it is whole', (word, fault) => {
    expect(settleFault(word)).toBe(fault);
  });

  it('sends what belongs to its outcome, and no more', () => {
    const typed = { ...WORD, result: '{"big": 9007199254740993}', error: 'no money', externalId: ' ch_1 ' };
    const said = { call_id: '0.3', why: 'the list has it', by: 'anna' };
    expect(settleBody('0.3', typed)).toEqual({
      ...said,
      outcome: 'finished',
      result: { big: 9007199254740993n },
      external_id: 'ch_1',
    });
    expect(settleBody('0.3', { ...typed, outcome: 'failed' })).toEqual({
      ...said,
      outcome: 'failed',
      result: 'no money',
      external_id: 'ch_1',
    });
    expect(settleBody('0.3', { ...typed, outcome: 'not_done' })).toEqual({ ...said, outcome: 'not_done' });
    expect(settleBody('0.3', WORD)).toEqual({ ...said, outcome: 'finished' });
  });
});
