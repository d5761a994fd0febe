import type { ForkDialog } from '../api/types';
import { type JsonFault, jsonFault, jsonText, parseJson } from '../base/json';
import type { WordKey } from '../base/words';
import { isSigned, membersOf, messagesIn, PARAMETERS, restOf, toolName, toolsAreNamed, toolsIn } from './request';

/** A message that is put in before the recorded one at this place; at the end too. */
interface Added {
  readonly at: number;
  readonly text: string;
}

/** What a person has typed into the fork panel. Texts are JSON where nothing else is said; empty means: unchanged. */
export interface Draft {
  /** The system prompt, as plain text. */
  readonly prompt: string | null;
  /** Edited messages by their place in the recorded list. */
  readonly messages: Readonly<Record<number, string>>;
  readonly removed: readonly number[];
  readonly added: readonly Added[];
  /** Edited definitions of tools, by name. */
  readonly tools: Readonly<Record<string, string>>;
  readonly removedTools: readonly string[];
  readonly addedTools: readonly string[];
  /** Everything else of the request. */
  readonly rest: string | null;
  /** Results that recorded tool steps shall have had, by step. */
  readonly results: Readonly<Record<number, string>>;
  readonly parameters: Readonly<Record<string, string>>;
  readonly live: boolean;
  readonly policies: Readonly<Record<string, string>>;
  readonly reasons: Readonly<Record<string, string>>;
  /** What stubs answer; empty: null. */
  readonly stubs: Readonly<Record<string, string>>;
  /** Tools that read the world, where that is meant. */
  readonly meant: readonly string[];
  readonly onMiss: 'error' | 'abort' | 'human';
  readonly repeat: 1 | 2 | 3;
  readonly control: boolean;
  readonly faithful: boolean;
  readonly codeChanged: boolean;
  readonly limits: Readonly<Record<string, string>>;
  readonly engine: 'own' | 'generic';
  readonly endpoint: string;
}

export const LIMITS = ['max_steps', 'max_tokens', 'max_cost', 'max_seconds'] as const;
const DEFAULT_STEPS = '12';

export const EMPTY: Draft = {
  prompt: null,
  messages: {},
  removed: [],
  added: [],
  tools: {},
  removedTools: [],
  addedTools: [],
  rest: null,
  results: {},
  parameters: {},
  live: false,
  policies: {},
  reasons: {},
  stubs: {},
  meant: [],
  onMiss: 'error',
  repeat: 1,
  control: false,
  faithful: false,
  codeChanged: false,
  limits: { max_steps: DEFAULT_STEPS },
  engine: 'generic',
  endpoint: '',
};

// --- what is wrong ----------------------------------------------------------------------------------------------------

/** Why a draft cannot be sent yet: where, and what is wrong there. */
export interface Problem {
  readonly part: Part;
  /** What of that kind: a place in the list, a name. */
  readonly which: string;
  readonly fault: JsonFault | WordKey;
}

/** The kinds of places in a draft where something can be wrong. */
type Part = 'message' | 'tool' | 'rest' | 'result' | 'stub' | 'parameter' | 'limit' | 'live';

/** Everything that keeps a draft from being sent, in the order of the panel. */
export function problems(draft: Draft, dialog: ForkDialog): readonly Problem[] {
  const objects = (part: Part, texts: readonly (readonly [string, string])[]) =>
    texts.flatMap(([which, text]) => wrong(part, which, objectFault(text)));
  const values = (part: Part, texts: readonly (readonly [string, string])[]) =>
    texts.flatMap(([which, text]) => wrong(part, which, jsonFault(text)));
  const removed = draft.removed.map(String);
  return [
    ...objects(
      'message',
      Object.entries(draft.messages).filter(([at]) => !removed.includes(at)),
    ),
    ...objects(
      'message',
      draft.added.map(({ text }, at) => [`+${at + 1}`, text]),
    ),
    ...toolProblems(draft, dialog),
    ...(draft.rest === null ? [] : objects('rest', [['', draft.rest]])),
    ...values('result', Object.entries(draft.results)),
    ...values('stub', stubsOf(draft)),
    ...PARAMETERS.flatMap(name => wrong('parameter', name, numberFault(name, draft.parameters[name]))),
    ...liveOf(draft).flatMap(name => [
      ...wrong('live', name, hasNoCode(draft, dialog, name) ? 'fork.bad.noCode' : null),
      ...wrong('live', name, reasonOf(draft, dialog, name) ? null : 'fork.bad.reason'),
      ...wrong('live', name, mustBeMeant(draft, dialog, name) ? 'fork.bad.meant' : null),
    ]),
    ...LIMITS.flatMap(name => wrong('limit', name, limitFault(draft.limits[name]))),
  ];
}

function wrong(part: Part, which: string, fault: Problem['fault'] | null): readonly Problem[] {
  return fault === null ? [] : [{ part, which, fault }];
}

/** What is wrong with the text of one object; null if nothing is. */
export function objectFault(text: string): Problem['fault'] | null {
  return jsonFault(text) ?? (membersOf(parseJson(text)) ? null : 'fork.bad.object');
}

function toolProblems(draft: Draft, dialog: ForkDialog): readonly Problem[] {
  const kept = toolsIn(dialog.request)
    .map(toolName)
    .filter(name => name !== null && !draft.removedTools.includes(name));
  const edited = Object.entries(draft.tools).filter(([name]) => !draft.removedTools.includes(name));
  return [
    ...edited.flatMap(([name, text]) => {
      const fault = objectFault(text);
      const renamed = fault === null && toolName(parseJson(text)) !== name;
      return wrong('tool', name, renamed ? 'fork.bad.renamed' : fault);
    }),
    ...draft.addedTools.flatMap((text, at) => {
      const fault = objectFault(text);
      const name = fault === null ? toolName(parseJson(text)) : null;
      if (fault === null && name === null) return wrong('tool', `+${at + 1}`, 'fork.bad.unnamed');
      const others = [...kept, ...draft.addedTools.slice(0, at).map(nameIn)];
      return wrong('tool', `+${at + 1}`, fault ?? (others.includes(name) ? 'fork.bad.twice' : null));
    }),
  ];
}

/** The name of a tool in the text of its definition, as far as it can be read. */
export function nameIn(text: string): string | null {
  return jsonFault(text) ? null : toolName(parseJson(text));
}

function numberFault(name: string, text: string | undefined): WordKey | null {
  const given = text?.trim() ?? '';
  if (given === '' || name === 'model') return null;
  const value = Number(given);
  if (!Number.isFinite(value)) return 'fork.bad.number';
  if (name === 'temperature') return value < 0 || value > 2 ? 'fork.bad.temperature' : null;
  if (name === 'top_p') return value < 0 || value > 1 ? 'fork.bad.share' : null;
  if (name === 'seed') return Number.isInteger(value) ? null : 'fork.bad.whole';
  return Number.isInteger(value) && value >= 1 ? null : 'fork.bad.count';
}

function limitFault(text: string | undefined): WordKey | null {
  const given = text?.trim() ?? '';
  return given === '' || /^\d+(\.\d+)?$/.test(given) ? null : 'fork.bad.limit';
}

/** Tools that this draft lets run for real. */
export function liveOf(draft: Draft): readonly string[] {
  return draft.live ? Object.keys(draft.policies).filter(name => draft.policies[name] === 'live') : [];
}

function reasonOf(draft: Draft, dialog: ForkDialog, name: string): string {
  return draft.reasons[name]?.trim() || (dialog.live_known.find(one => one.name === name)?.reason ?? '');
}

/** The plain loop runs the tools that the server has itself, and no others. */
function hasNoCode(draft: Draft, dialog: ForkDialog, name: string): boolean {
  return draft.engine === 'generic' && dialog.tools.find(tool => tool.name === name)?.built_in !== true;
}

function mustBeMeant(draft: Draft, dialog: ForkDialog, name: string): boolean {
  return dialog.tools.find(tool => tool.name === name)?.effect === 'read' && !draft.meant.includes(name);
}

function stubsOf(draft: Draft): readonly (readonly [string, string])[] {
  return Object.entries(draft.policies).flatMap(([name, policy]) => {
    const text = policy === 'stub' ? (draft.stubs[name]?.trim() ?? '') : '';
    return text === '' ? [] : [[name, text] as const];
  });
}

// --- what is sent -----------------------------------------------------------------------------------------------------

type Body = Readonly<Record<string, unknown>>;

/** What is sent: only what was changed. A part that is wrong is left out, see `problems`. */
export function bodyOf(draft: Draft, dialog: ForkDialog): Body {
  const live = liveOf(draft);
  const rules = rulesOf(draft);
  const limits = limitsOf(draft);
  return {
    from_step: dialog.at_start ? 'start' : dialog.from_step,
    engine: draft.engine,
    overrides: overridesOf(draft, dialog),
    ...(live.length ? { live_tools: live.map(name => liveTool(draft, name)) } : {}),
    ...(Object.keys(rules).length ? { tools: rules } : {}),
    ...(draft.onMiss === 'error' ? {} : { on_miss: draft.onMiss }),
    ...(draft.repeat === 1 ? {} : { repeat: draft.repeat }),
    ...(draft.control === draft.repeat > 1 ? {} : { control: draft.control }),
    ...(draft.faithful ? { require_faithful: true } : {}),
    ...(draft.codeChanged && draft.engine === 'own' ? { code_changed: true } : {}),
    ...(Object.keys(limits).length ? { limits } : {}),
    ...(draft.endpoint && draft.engine === 'generic' ? { endpoint: draft.endpoint } : {}),
  };
}

function liveTool(draft: Draft, name: string): Body {
  const reason = draft.reasons[name]?.trim();
  return { name, ...(reason ? { reason } : {}), ...(draft.meant.includes(name) ? { read: true } : {}) };
}

function rulesOf(draft: Draft): Readonly<Record<string, string>> {
  const chosen = Object.entries(draft.policies).filter(([, policy]) => policy !== 'cassette' && policy !== 'live');
  const stubs = new Map(stubsOf(draft));
  return Object.fromEntries(
    chosen.map(([name, policy]) => {
      const text = policy === 'stub' ? stubs.get(name) : undefined;
      return [name, text === undefined ? policy : `${policy}:${text}`];
    }),
  );
}

/** Limits as numbers; money stays the text that was typed, so that no digit is lost. */
function limitsOf(draft: Draft): Readonly<Record<string, unknown>> {
  const set = Object.entries(draft.limits).filter(
    ([name, text]) => text.trim() !== '' && !(name === 'max_steps' && text.trim() === DEFAULT_STEPS),
  );
  return Object.fromEntries(set.map(([name, text]) => [name, name === 'max_cost' ? text.trim() : Number(text)]));
}

function overridesOf(draft: Draft, dialog: ForkDialog): Body {
  const found: Record<string, unknown> = {};
  if (draft.prompt !== null && draft.prompt !== dialog.system_prompt) found['system_prompt'] = draft.prompt;
  for (const name of PARAMETERS) {
    const text = draft.parameters[name]?.trim();
    if (text && numberFault(name, text) === null) found[name] = name === 'model' ? text : Number(text);
  }
  const messages = messageEdits(draft, dialog);
  if (messages.length) found['messages'] = messages;
  const tools = toolsAreNamed(dialog.request, dialog.form) ? toolEdits(draft, dialog) : [];
  if (tools.length) found['tools'] = tools;
  const [extra, unset] = restEdits(draft, dialog);
  if (Object.keys(extra).length) found['extra'] = extra;
  if (unset.length) found['unset_paths'] = unset;
  const results = Object.entries(draft.results).filter(([, text]) => jsonFault(text) === null);
  if (results.length)
    found['tool_results'] = Object.fromEntries(results.map(([step, text]) => [step, parseJson(text)]));
  return found;
}

function same(a: unknown, b: unknown): boolean {
  return jsonText(a) === jsonText(b);
}

function messageEdits(draft: Draft, dialog: ForkDialog): readonly Body[] {
  const recorded = messagesIn(dialog.request);
  const set = Object.entries(draft.messages).flatMap(([at, text]) => {
    const index = Number(at);
    if (draft.removed.includes(index) || objectFault(text) !== null) return [];
    const message = parseJson(text);
    return same(message, recorded[index]) ? [] : [{ index, op: 'set', message }];
  });
  // The last of several at one place is put in first: each goes before what stands there by then.
  const inserted = draft.added
    .filter(({ text }) => objectFault(text) === null)
    .map(({ at, text }) => ({ index: at, op: 'insert', message: parseJson(text) }))
    .reverse();
  return [...set, ...draft.removed.map(index => ({ index, op: 'remove' })), ...inserted];
}

function toolEdits(draft: Draft, dialog: ForkDialog): readonly Body[] {
  const recorded = new Map(toolsIn(dialog.request).map(tool => [toolName(tool), tool]));
  const set = Object.entries(draft.tools).flatMap(([name, text]) => {
    if (draft.removedTools.includes(name) || nameIn(text) !== name) return [];
    const definition = parseJson(text);
    return same(definition, recorded.get(name)) ? [] : [{ op: 'set', name, definition }];
  });
  const added = draft.addedTools.flatMap(text => {
    const name = nameIn(text);
    return name === null ? [] : [{ op: 'add', name, definition: parseJson(text) }];
  });
  return [...set, ...draft.removedTools.map(name => ({ op: 'remove', name })), ...added];
}

/** Members that were set, and paths of those that were taken out. */
function restEdits(draft: Draft, dialog: ForkDialog): readonly [Body, readonly string[]] {
  if (draft.rest === null || objectFault(draft.rest) !== null) return [{}, []];
  const recorded = restOf(dialog.request, dialog.form);
  const now = membersOf(parseJson(draft.rest)) ?? {};
  const set = Object.entries(now).filter(([name, value]) => !(name in recorded) || !same(value, recorded[name]));
  const gone = Object.keys(recorded).filter(name => !(name in now));
  return [Object.fromEntries(set), gone.map(pathOf)];
}

/** A name as the first part of a path. */
function pathOf(name: string): string {
  return /^[^.[\]"]+$/.test(name) ? name : `[${JSON.stringify(name)}]`;
}

/** Places of edited or removed messages that hold signed reasoning: a provider may refuse the rest without it. */
export function signedEdits(draft: Draft, dialog: ForkDialog): readonly number[] {
  const recorded = messagesIn(dialog.request);
  const touched = new Set([...draft.removed, ...Object.keys(draft.messages).map(Number)]);
  return [...touched].filter(at => isSigned(recorded[at])).sort((a, b) => a - b);
}

// --- what is changed, for people --------------------------------------------------------------------------------------

/** One thing that a draft changes: its kind, and which of that kind. */
export interface Change {
  readonly word: WordKey;
  readonly which: string;
}

/** What a draft changes in requests and results; the answers of tools are told apart, see `answers`. */
export function changes(draft: Draft, dialog: ForkDialog): readonly Change[] {
  const made = overridesOf(draft, dialog);
  const list = (name: string) => (made[name] as readonly Body[] | undefined) ?? [];
  const one = (word: WordKey, which = ''): Change => ({ word, which });
  const found = [
    ...('system_prompt' in made ? [one('override.system_prompt')] : []),
    ...list('messages').map(edit => one(`fork.change.${edit['op'] as Op}`, String(edit['index']))),
    ...list('tools').map(edit => one(`fork.change.tool.${edit['op'] as ToolOp}`, String(edit['name']))),
    ...PARAMETERS.filter(name => name in made).map(name => one('override.parameter', `${name} = ${made[name]}`)),
    ...Object.keys((made['extra'] as Body | undefined) ?? {}).map(name => one('fork.change.member', name)),
    ...((made['unset_paths'] as readonly string[] | undefined) ?? []).map(name => one('fork.change.unset', name)),
    ...Object.keys((made['tool_results'] as Body | undefined) ?? {}).map(step => one('fork.change.result', step)),
  ];
  return found;
}

type Op = 'set' | 'insert' | 'remove';
type ToolOp = 'set' | 'add' | 'remove';

/** Tools that are not answered from the recording, with who answers them: `calculate`, `live`. */
export function answers(draft: Draft): readonly (readonly [name: string, policy: string])[] {
  const live = liveOf(draft);
  const others = Object.entries(draft.policies).filter(([, policy]) => policy !== 'cassette' && policy !== 'live');
  return [...live.map(name => [name, 'live'] as const), ...others];
}

/** How many lines of a text were added, removed or changed. */
export function lineCount(before: string, now: string): { readonly added: number; readonly removed: number } {
  const left = new Map<string, number>();
  for (const line of before.split('\n')) left.set(line, (left.get(line) ?? 0) + 1);
  let added = 0;
  for (const line of now.split('\n')) {
    const there = left.get(line) ?? 0;
    if (there > 0) left.set(line, there - 1);
    else added += 1;
  }
  return { added, removed: [...left.values()].reduce((sum, n) => sum + n, 0) };
}
