// @vitest-environment node
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { reasonIn, sentenceIn } from './said';

const SERVER = join(import.meta.dirname, '../../../../src/agentloupe/server');
const source = (file: string) => readFileSync(join(SERVER, file), 'utf8');

describe('what the server says', () => {
  it.each([
    [
      'documents.py',
      'a fork starts at a model step: what a tool was asked for was decided there',
      'a fork starts at a',
    ],
    ['documents.py', 'the run was deleted; its requests are gone', 'the run was deleted; its requests are gone'],
    ['documents.py', 'the stored request is not complete: cut at 4 kB', 'the stored request is not complete: '],
    ['documents.py', 'the request was not recorded', 'the request was not recorded'],
    [
      '../engine/cassette.py',
      'nearest recorded call: look_up in step 2 of desk-1 (arguments)',
      'nearest recorded call: ',
    ],
    ['routes/forkdialog.py', "no worker has the agent 'desk'", 'no worker has the agent '],
    ['routes/forkdialog.py', 'it is an import: its code is not here', 'it is an import: its code is not here'],
    [
      'routes/forkdialog.py',
      "the generic loop does not speak the form 'x'",
      'the generic loop does not speak the form ',
    ],
  ])('is said in Chinese as long as %s says “%s”', (file, sentence, written) => {
    expect(source(file)).toContain(written);
    expect(sentenceIn('zh-CN', sentence)).toMatch(/\p{Script=Han}/u);
    expect(sentenceIn('en', sentence)).toBe(sentence);
  });

  it('keeps names, and stays as it is where it is not known', () => {
    expect(sentenceIn('zh-CN', "no worker has the agent 'desk'")).toContain('“desk”');
    expect(sentenceIn('zh-CN', 'something else')).toBe('something else');
    expect(reasonIn('zh-CN', 'nobody_knows')).toBeNull();
    expect(reasonIn('en', 'no_worker')).toBeNull();
    expect(reasonIn('zh-CN', 'no_worker')).toMatch(/\p{Script=Han}/u);
  });
});
