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

  /** Sentences that the engine puts together, with a word for what it puts in. */
  const made = (file: string, ...forms: RegExp[]) =>
    texts(file, ...forms).map(text => text.replace(/\{[^{}]*\}/g, '7').replace(/\{[^{}]*\}/g, '7'));
  const NOTED = [
    ...made('engine/explain.py', /message=f?"([^"]*)"/g, /count = f"([^"]*)"/g),
    ...made('engine/ruling.py', /notes\.append\("([^"]*)"/g, /message=f"([^"]*)"/g),
    ...made('engine/replayer.py', /note = f"([^"]*)"/g, /strayed\(f"([^"]*)"/g),
    ...made(
      'verbs/replaysession.py',
      /notes\.append\(f"([^"]*)"/g,
      /^_OTHERS: Final = "([^"]*)"/gm,
      /message=f"([^"]*)"/g,
    ),
    ...made('verbs/isolated.py', /notes\.append\(f?"([^"]*)"/g, /message=f"([^"]*)"/g),
    ...made('verbs/replaying.py', /message="([^"]*)"/g),
    ...made('verbs/keeping.py', /return "\w+", f?"([^"]*)"/g),
    ...made('words/keeping.py', /return f"(\{values\}[^"]*)"/g),
    ...made('engine/recorder.py', /_covered\.lower\(\s*"\w+", f"([^"]*)"/g),
    ...made('engine/recorder.py', /note = f"((?:tool|\{what\})[^"]*)"/g),
    ...made('engine/settling.py', /"coverage_notes": \[f"([^"]*)"/g),
    ...made('engine/cautions.py', /yield f?"([^"]*)"/g, /found\.append\(\s*f?"([^"]*)"/g),
    ...made('verbs/forkfamily.py', /notes\.append\(f"([^"]*)"/g),
    ...made('verbs/working.py', /notes\.append\(f"([^"]*)"/g),
  ].filter(
    text =>
      /[a-z]{3}/.test(text) &&
      !text.endsWith(': kept as they came, looked through for secrets as far as they can be read'),
  );

  it('has the notes of reports, recordings and forks from the engine itself', () => {
    expect(NOTED.length).toBeGreaterThan(45);
    expect(NOTED).toContain('the store failed meanwhile (7)');
  });

  it.each(NOTED)('says in Chinese what is noted: %s', text => {
    expect(sentenceIn('zh-CN', text)).toMatch(/\p{Script=Han}/u);
    expect(sentenceIn('en', text)).toBe(text);
  });

  it('keeps what a note names', () => {
    expect(sentenceIn('zh-CN', 'args.0: $.at of type Clock could not be recorded')).toBe(
      'args.0：类型 Clock 的 $.at 无法录制',
    );
    expect(sentenceIn('zh-CN', 'the program ended with exit code 1, the recorded one with 0')).toMatch(/ 1，.* 0$/);
    expect(
      sentenceIn('zh-CN', 'max_tokens (10) must be more than thinking.budget_tokens (20), the model will'),
    ).toMatch(/（10）.*（20）/);
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
