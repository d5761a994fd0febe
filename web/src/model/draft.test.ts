import { describe, expect, it } from 'vitest';
import type { ForkDialog } from '../api/types';
import { answers, bodyOf, changes, type Draft, EMPTY, lineCount, problems, signedEdits } from './draft';
import { typesIn } from './kept';
import {
  editable,
  furtherInstructions,
  messagesIn,
  newTool,
  recordedParameter,
  restOf,
  toolsAreNamed,
  toolsIn,
} from './request';

const WEATHER = { type: 'function', function: { name: 'get_weather', parameters: { type: 'object' } } };
const REQUEST = `{"model":"m","max_completion_tokens":50,"tool_choice":"auto","metadata":{"a.b":1},
  "messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi","id":9007199254740993}],
  "tools":[${JSON.stringify(WEATHER)}]}`;
const dialog = {
  from_step: 3,
  request: REQUEST,
  form: 'chat',
  system_prompt: 'Be brief.',
  tools: [
    { name: 'calc', effect: 'pure', built_in: true },
    { name: 'look', effect: 'read' },
  ],
  live_known: [{ name: 'calc', reason: 'arithmetic only' }],
} as unknown as ForkDialog;

const overridesOf = (draft: Partial<Draft>) => bodyOf({ ...EMPTY, ...draft }, dialog)['overrides'];
const faults = (draft: Partial<Draft>) =>
  problems({ ...EMPTY, ...draft }, dialog).map(({ part, which, fault }) => [
    part,
    which,
    typeof fault === 'string' ? fault : `${fault.line}:${fault.column}`,
  ]);

describe('a recorded result', () => {
  it('names the types that an edited one does not have', () => {
    const typed = '{"at":{"$datetime":"2026-11-30T17:00:00"},"all":[{"$model":{"n":{"$decimal":"1.50"}}}],"$9":1}';
    expect(typesIn(typed)).toEqual(['$datetime', '$decimal', '$model']);
    expect(typesIn('{"price":"$5"}')).toEqual([]);
  });
});

describe('what is sent of a draft', () => {
  it('is nothing but the place where nothing was changed', () => {
    const typed = { prompt: 'Be brief.', parameters: { temperature: ' ' }, limits: { max_steps: '12' } };
    expect(bodyOf({ ...EMPTY, ...typed }, dialog)).toEqual({ from_step: 3, engine: 'generic', overrides: {} });
  });

  it('is what was changed', () => {
    const draft = {
      ...EMPTY,
      prompt: '',
      parameters: { model: 'other', temperature: '0.7', seed: '7' },
      onMiss: 'abort',
    };
    expect(bodyOf(draft as Draft, dialog)).toEqual({
      from_step: 3,
      engine: 'generic',
      overrides: { system_prompt: '', model: 'other', temperature: 0.7, seed: 7 },
      on_miss: 'abort',
    });
  });

  it('begins at the start where the dialog does, with instructions that were put in', () => {
    const start = { ...dialog, from_step: 0, at_start: true, request: '{}', form: null, system_prompt: null };
    expect(bodyOf({ ...EMPTY, engine: 'own', prompt: 'New.' }, start)).toEqual({
      from_step: 'start',
      engine: 'own',
      overrides: { system_prompt: 'New.' },
    });
  });

  it('keeps every digit of a message, and leaves out one that only looks different', () => {
    const [system, user] = messagesIn(REQUEST);
    const draft = { messages: { 0: `${editable(system)}\n`, 1: editable(user).replace('Hi', 'Ho') } };
    expect(overridesOf(draft)).toEqual({
      messages: [{ index: 1, op: 'set', message: { role: 'user', content: 'Ho', id: 9007199254740993n } }],
    });
  });

  it('takes messages out and puts new ones in, the last of several at one place first', () => {
    const draft = {
      messages: { 1: '{"role":"user","content":"edited, then taken out"}' },
      removed: [1],
      added: [
        { at: 2, text: '{"role":"user","content":"first"}' },
        { at: 2, text: '{"role":"user","content":"second"}' },
      ],
    };
    expect(overridesOf(draft)).toEqual({
      messages: [
        { index: 1, op: 'remove' },
        { index: 2, op: 'insert', message: { role: 'user', content: 'second' } },
        { index: 2, op: 'insert', message: { role: 'user', content: 'first' } },
      ],
    });
  });

  it('sets, adds and takes out tools by name', () => {
    const changed = editable(WEATHER).replace('"object"', '"string"');
    expect(overridesOf({ tools: { get_weather: changed }, addedTools: [editable(newTool('chat'))] })).toEqual({
      tools: [
        { op: 'set', name: 'get_weather', definition: JSON.parse(changed) },
        { op: 'add', name: 'new_tool', definition: newTool('chat') },
      ],
    });
    expect(overridesOf({ tools: { get_weather: changed }, removedTools: ['get_weather'] })).toEqual({
      tools: [{ op: 'remove', name: 'get_weather' }],
    });
    expect(overridesOf({ tools: { get_weather: editable(WEATHER) } })).toEqual({});
  });

  it('has the members of the rest that differ, and paths of those that are gone', () => {
    expect(Object.keys(restOf(REQUEST, 'chat'))).toEqual(['tool_choice', 'metadata']);
    expect(overridesOf({ rest: '{"tool_choice": "none", "metadata": {"a.b": 1}, "logprobs": true}' })).toEqual({
      extra: { tool_choice: 'none', logprobs: true },
    });
    expect(overridesOf({ rest: '{"tool_choice": "auto"}' })).toEqual({ unset_paths: ['metadata'] });
    const odd = { ...dialog, request: '{"messages":[],"a.b":1}' };
    expect(bodyOf({ ...EMPTY, rest: '{}' }, odd)['overrides']).toEqual({ unset_paths: ['["a.b"]'] });
  });

  it('has results of recorded steps by their step', () => {
    expect(overridesOf({ results: { 1: '"-20 °C"', 4: '{"n": 9007199254740993}' } })).toEqual({
      tool_results: { 1: '-20 °C', 4: { n: 9007199254740993n } },
    });
  });

  it('runs nothing live unless the switch is on; stubs carry their JSON', () => {
    const draft: Draft = {
      ...EMPTY,
      policies: { calc: 'live', look: 'live', mail: 'human', note: 'stub', pay: 'stub', other: 'cassette' },
      reasons: { look: ' to see ' },
      meant: ['look'],
      stubs: { pay: ' {"ok": true} ' },
    };
    const tools = { mail: 'human', note: 'stub', pay: 'stub:{"ok": true}' };
    expect(bodyOf(draft, dialog)).toEqual({ from_step: 3, engine: 'generic', overrides: {}, tools });
    expect(bodyOf({ ...draft, live: true }, dialog)).toMatchObject({
      live_tools: [{ name: 'calc' }, { name: 'look', reason: 'to see', read: true }],
      tools,
    });
    expect(answers({ ...draft, live: true }).map(([name]) => name)).toEqual(['calc', 'look', 'mail', 'note', 'pay']);
  });

  it('has controls where they are not what repeats bring by themselves', () => {
    expect(bodyOf({ ...EMPTY, repeat: 3, control: true }, dialog)).toMatchObject({ repeat: 3 });
    expect(bodyOf({ ...EMPTY, repeat: 3, control: true }, dialog)).not.toHaveProperty('control');
    expect(bodyOf({ ...EMPTY, repeat: 3 }, dialog)).toMatchObject({ control: false });
    expect(bodyOf({ ...EMPTY, control: true }, dialog)).toMatchObject({ control: true });
  });

  it('has money as the text that was typed', () => {
    expect(bodyOf({ ...EMPTY, limits: { max_cost: '0.20', max_seconds: '120' } }, dialog)).toMatchObject({
      limits: { max_cost: '0.20', max_seconds: 120 },
    });
  });
});

describe('what is wrong with a draft', () => {
  it('is nothing at first', () => expect(faults({})).toEqual([]));

  it('names line and column of what is no JSON, and sends none of it', () => {
    const draft = { messages: { 1: '{\n  "role": user\n}' }, results: { 2: '{"a":1' }, rest: '[]' };
    expect(faults(draft)).toEqual([
      ['message', '1', '2:11'],
      ['rest', '', 'fork.bad.object'],
      ['result', '2', '1:7'],
    ]);
    expect(overridesOf(draft)).toEqual({});
  });

  it('is a tool without a name, with another one, or with one that is taken', () => {
    const other = editable(WEATHER).replace('get_weather', 'other');
    expect(faults({ tools: { get_weather: other }, addedTools: ['{}', editable(WEATHER)] })).toEqual([
      ['tool', 'get_weather', 'fork.bad.renamed'],
      ['tool', '+1', 'fork.bad.unnamed'],
      ['tool', '+2', 'fork.bad.twice'],
    ]);
    expect(faults({ removedTools: ['get_weather'], addedTools: [editable(WEATHER)] })).toEqual([]);
  });

  it('is a number out of its range', () => {
    const parameters = { temperature: '2.1', top_p: '-1', seed: '1.5', max_tokens: '0' };
    expect(faults({ parameters, limits: { max_cost: 'much' } }).map(([part, which]) => `${part} ${which}`)).toEqual([
      'parameter temperature',
      'parameter top_p',
      'parameter seed',
      'parameter max_tokens',
      'limit max_cost',
    ]);
  });

  it('is a live tool without a reason, or one that reads and was not meant to', () => {
    const draft = { live: true, engine: 'own' as const, policies: { calc: 'live', look: 'live' } };
    expect(faults(draft)).toEqual([
      ['live', 'look', 'fork.bad.reason'],
      ['live', 'look', 'fork.bad.meant'],
    ]);
    const meant = { ...draft, reasons: { look: 'to see' }, meant: ['look'] };
    expect(faults(meant)).toEqual([]);
    expect(faults({ ...meant, engine: 'generic' })).toEqual([['live', 'look', 'fork.bad.noCode']]);
  });

  it('is a stub that is no JSON', () => {
    expect(faults({ policies: { pay: 'stub' }, stubs: { pay: '{' } })).toEqual([['stub', 'pay', '1:2']]);
  });
});

describe('what a draft changes, for people', () => {
  it('names each thing once', () => {
    const draft = { ...EMPTY, prompt: 'x', parameters: { model: 'other' }, results: { 2: '1' }, removed: [1] };
    expect(changes(draft, dialog)).toEqual([
      { word: 'override.system_prompt', which: '' },
      { word: 'fork.change.remove', which: '1' },
      { word: 'override.parameter', which: 'model = other' },
      { word: 'fork.change.result', which: '2' },
    ]);
  });

  it('counts lines', () => {
    expect(lineCount('a\nb\nb', 'a\nb\nc\nd')).toEqual({ added: 2, removed: 1 });
    expect(lineCount('a', 'a')).toEqual({ added: 0, removed: 0 });
  });
});

describe('a recorded request', () => {
  it('has further instructions that a new prompt leaves alone', () => {
    const messages = '[{"role":"system"},{"role":"user"},{"role":"developer"}]';
    expect(furtherInstructions(`{"messages":${messages}}`, 'chat')).toEqual([2]);
    expect(furtherInstructions(`{"instructions":"x","input":${messages}}`, 'responses')).toEqual([0, 2]);
    expect(furtherInstructions(`{"input":${messages}}`, 'responses')).toEqual([2]);
  });

  it('knows signed reasoning, whose edit is warned of', () => {
    const request = `{"messages":[{"role":"user","content":"Hi"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"...","signature":"abc"},{"type":"text","text":"Ho"}]},
      {"role":"assistant","content":[{"type":"redacted_thinking","data":"xyz"}]}]}`;
    const signed = { ...dialog, request };
    expect(signedEdits({ ...EMPTY, messages: { 0: '{}', 1: '{}' } }, signed)).toEqual([1]);
    expect(signedEdits({ ...EMPTY, removed: [2, 0] }, signed)).toEqual([2]);
  });

  it('has parameters under the names that providers use', () => {
    expect(recordedParameter(REQUEST, 'max_tokens')).toBe(50);
    expect(recordedParameter(REQUEST, 'temperature')).toBeUndefined();
  });

  it('has tools to edit one by one only where each has a name of its own', () => {
    expect(toolsAreNamed(REQUEST, 'chat')).toBe(true);
    expect(toolsAreNamed('{"tools":[{"type":"web_search"}]}', 'responses')).toBe(false);
    expect(toolsAreNamed('{"tools":[{"name":"a"},{"name":"a"}]}', 'anthropic')).toBe(false);
    expect(toolsAreNamed(REQUEST, 'gemini')).toBe(false);
    expect(Object.keys(restOf(REQUEST, 'gemini'))).toContain('tools');
  });

  it('has the tools of Converse, which stand in a configuration of their own', () => {
    const tool = newTool('converse');
    const request = (config: object) => JSON.stringify({ messages: [], toolConfig: config });
    const converse = { ...dialog, form: 'converse', request: request({ tools: [tool] }) } as ForkDialog;
    expect(toolsIn(converse.request)).toEqual([tool]);
    expect(toolsAreNamed(converse.request, 'converse')).toBe(true);
    expect(restOf(converse.request, 'converse')).toEqual({});
    expect(Object.keys(restOf(request({ tools: [tool], toolChoice: { any: {} } }), 'converse'))).toEqual([
      'toolConfig',
    ]);
    const body = bodyOf({ ...EMPTY, removedTools: ['new_tool'] }, converse);
    expect(body['overrides']).toEqual({ tools: [{ op: 'remove', name: 'new_tool' }] });
  });
});
