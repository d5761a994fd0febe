// @vitest-environment node
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Verdict } from '../api/types';
import { speaker } from '../base/words';
import { FAULTS, faultIn, notProven, proven, standing } from './evidence';

const VERDICT: Verdict = {
  ok: true,
  origin: 'run r',
  run_id: 'r',
  events: 12,
  linked: 12,
  bodies_checked: 5,
  bodies_missing: 0,
  fault: null,
  more: [],
  ended: true,
  erased: false,
  anchored: false,
  anchored_at: null,
  anchor_sequence: null,
  key_id: null,
  anchors: false,
  anchor_problem: null,
  coverage: 'full',
  snapshot: null,
  proves: [],
  notes: [],
  reader: 'agentloupe 1',
  checked_at: '2026-04-01T10:00:00Z',
  reason: null,
  head: '',
};
const SIGNED = { anchored: true, anchored_at: '2026-04-01T09:00:00Z', anchor_sequence: 9, key_id: 'ab'.repeat(32) };
const run = (chain: 'ok' | 'broken' | 'not_checked', newer: string | null = null) => ({
  newer,
  badges: { chain, replay: null },
});
const words = (sentences: readonly { readonly word: string }[]) => sentences.map(one => one.word);
const at = (iso: string) => iso.slice(11, 16);

describe('the standing of the evidence', () => {
  it.each([
    ['newer', run('ok', 'schema 99'), VERDICT, false],
    ['checking', run('not_checked'), null, true],
    ['not_checked', run('not_checked'), null, false],
    ['damaged', run('broken'), null, false],
    ['damaged', run('ok'), { ...VERDICT, ok: false }, false],
    ['erased', run('ok'), { ...VERDICT, erased: true }, false],
    ['whole', run('ok'), VERDICT, false],
  ] as const)('is %s', (name, of, verdict, checking) => {
    expect(standing(of, verdict, checking)).toBe(name);
  });
});

describe('a check', () => {
  it('says what is proven and what is not', () => {
    expect(words(proven(VERDICT, at))).toEqual(['proof.linked', 'proof.bodies', 'proof.ended']);
    expect(words(notProven(VERDICT))).toEqual(['proof.noAnchors', 'proof.world']);
  });

  it('says up to where something was signed, and that nothing signed speaks of the rest', () => {
    const signed = { ...VERDICT, ...SIGNED, anchors: true };
    const [, said] = proven(signed, at);
    expect(said).toEqual({ word: 'proof.signed', values: { n: 9, at: '09:00', key: 'abababababab' } });
    expect(words(notProven(signed))).toEqual(['proof.behind', 'proof.world']);
    expect(words(notProven({ ...signed, anchor_sequence: 12 }))).toEqual(['proof.world']);
  });

  it('tells a run that no anchor names from a store without anchors, and from anchors that cannot be used', () => {
    expect(words(notProven({ ...VERDICT, anchors: true }))).toContain('proof.notSigned');
    const broken = notProven({ ...VERDICT, anchors: true, anchor_problem: 'line 3 is not signed' });
    expect(words(broken)).toEqual(['proof.anchorProblem', 'proof.world']);
  });

  it('does not say of a damaged run that it ended, nor of a run that goes on', () => {
    expect(words(proven({ ...VERDICT, ok: false, linked: 3 }, at))).toEqual(['proof.linked', 'proof.bodies']);
    expect(words(notProven({ ...VERDICT, ended: false }))).toContain('proof.notEnded');
    expect(words(notProven({ ...VERDICT, erased: true, bodies_missing: 3 }))).toContain('proof.erased');
    expect(words(notProven({ ...VERDICT, bodies_missing: 3 }))).toContain('proof.missing');
  });

  it('knows every kind of fault that the engine can say', () => {
    const verify = join(import.meta.dirname, '../../../src/agentloupe/engine/verify.py');
    const said = /def said_of[\s\S]*?\n {4}\}/.exec(readFileSync(verify, 'utf8'))?.[0] ?? '';
    const kinds = [...said.matchAll(/^ {8}"(\w+)":/gm)].map(([, kind]) => kind);
    expect(kinds.length).toBeGreaterThan(10);
    expect([...FAULTS].sort()).toEqual(kinds.sort());
  });

  it.each(['gap', 'relinked', 'lost', 'of tomorrow'])('names the first bad record: %s', reason => {
    const sentence = faultIn({ sequence: 7, reason, expected: 'a', actual: 'b' });
    for (const language of ['en', 'zh-CN'] as const) {
      expect(speaker(language)(sentence.word, sentence.values)).not.toContain('{');
    }
  });
});
