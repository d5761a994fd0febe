// @vitest-environment node
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { reasonIn, saysAll, sentenceIn, whyIn } from './said';

const API = readFileSync(join(import.meta.dirname, '../../api/openapi.json'), 'utf8');
/** The codes that the server's description names for its reasons. */
const CODES = [...API.matchAll(/"The same as a stable word: ([^"]*)"/g)].flatMap(([, listed]) =>
  [...(listed ?? '').matchAll(/`([a-z_]+)`/g)].map(([, code]) => code ?? ''),
);

describe('what the server says', () => {
  it('has codes for why no fork can begin', () => {
    expect(CODES).toEqual(expect.arrayContaining(['not_llm', 'no_request', 'no_worker', 'start']));
  });

  it.each(CODES)('is said in Chinese for %s, and in English as it came', code => {
    expect(whyIn('zh-CN', code, 'in English')).toMatch(/^\p{Script=Han}[^a-z]*$/u);
    expect(whyIn('en', code, 'in English')).toBe('in English');
  });

  it('is said in Chinese in a sentence that has no code, as long as the engine writes it so', () => {
    const cassette = join(import.meta.dirname, '../../../../src/agentloupe/engine/cassette.py');
    expect(readFileSync(cassette, 'utf8')).toContain('nearest recorded call: ');
    const said = 'nearest recorded call: look_up in step 2 of desk-1 (city changed: "a" -> "b"; unit added: 1)';
    expect(sentenceIn('zh-CN', said)).toBe(
      '最接近的录制调用：运行 desk-1 步骤 2 的 look_up (city 改为不同的值："a" -> "b"; 新增 unit：1)',
    );
    expect(sentenceIn('en', said)).toBe(said);
    expect(sentenceIn('zh-CN', 'nearest recorded call: look_up in desk-1')).toMatch(/^\p{Script=Han}/u);
    expect(sentenceIn('zh-CN', 'my text; it changed: no')).toBe('my text; it changed: no');
  });

  const engine = (file: string) =>
    readFileSync(join(import.meta.dirname, '../../../../src/agentloupe', file), 'utf8').replace(/"\n +"/g, '');
  const texts = (file: string, ...beginnings: RegExp[]) =>
    beginnings.flatMap(begins => [...engine(file).matchAll(begins)].map(([, text]) => text ?? ''));
  const REPORTED = [
    ...texts('engine/difference.py', /^_?[A-Z]+(?:: Final)? = \(?\s*"([a-z][^"]*)"/gm),
    ...texts('engine/explain.py', /^ {4}"[a-z_]+": "([^"]*)"/gm, /suggestion="([^"]*)"/g),
    ...texts('engine/ruling.py', /^NOT_OBSERVED: Final = \("([^"]*)"/gm),
    ...texts('engine/report.py', /^NOTHING_RUN: Final = "([^"]*)"/gm),
    ...texts('engine/replayer.py', /\(c, "([^"]+)"\)/g),
    ...texts('verbs/replaying.py', /^_(?:IN_PROCESS|NATIVE) = "([^"]*)"/gm),
    ...texts('verbs/isolated.py', /^_(?:NAMESPACE|HOOKED): Final = "([^"]*)"/gm),
  ];

  it('has the sentences of a report from the engine itself', () => {
    expect(REPORTED.length).toBeGreaterThan(30);
    expect(REPORTED).toContain('already consumed');
  });

  it.each(REPORTED)('says in Chinese what a report says: %s', text => {
    expect(sentenceIn('zh-CN', text)).toMatch(/\p{Script=Han}/u);
    expect(sentenceIn('en', text)).toBe(text);
  });

  it('keeps what a sentence of a report names', () => {
    expect(engine('engine/replayer.py')).toContain('f"the same call, but {before} recorded call');
    expect(sentenceIn('zh-CN', 'the same call, but 1 recorded call comes before it')).toMatch(/ 1 /);
    expect(sentenceIn('zh-CN', 'other arguments at city, unit ...')).toBe('参数不同：city, unit ...');
    expect(sentenceIn('zh-CN', 'the differing part looks like a time: x; use agentloupe.now()')).toMatch(
      /agentloupe\.now\(\)$/,
    );
  });

  it('does not repeat in English what a name behind the reason says', () => {
    expect(whyIn('zh-CN', 'run_not_found', "no run 'desk-1'")).toBe('没有此运行：desk-1');
    expect(whyIn('zh-CN', 'step_not_found', 'desk-1 has no step 12')).toBe('没有此步骤：12');
    expect(saysAll('zh-CN', 'run_not_found')).toBe(true);
    expect(saysAll('zh-CN', 'damaged')).toBe(false);
  });

  it('keeps names and causes, and stays as it is where it is not known', () => {
    expect(whyIn('zh-CN', 'no_worker', "no worker has the agent 'desk'")).toMatch(/：desk$/);
    expect(whyIn('zh-CN', 'cut_request', 'the stored request is not complete: cut at 4 kB')).toMatch(/：cut at 4 kB$/);
    expect(whyIn('zh-CN', 'nobody_knows', 'something else')).toBe('something else');
    expect(whyIn('zh-CN', null, null)).toBe('');
    expect(reasonIn('zh-CN', 'nobody_knows')).toBeNull();
    expect(reasonIn('zh-CN', 'damaged')).toMatch(/\p{Script=Han}/u);
  });
});
