import type { ForkDialog } from '../api/types';
import { jsonText, parseJson } from '../base/json';

/** What a person has typed into the fork panel. Empty text means: unchanged. */
export interface Draft {
  readonly prompt: string | null;
  /** Texts of edited messages by their place in the recorded list. */
  readonly messages: Readonly<Record<number, string>>;
  readonly parameters: Readonly<Record<string, string>>;
  readonly live: boolean;
  readonly policies: Readonly<Record<string, string>>;
  readonly reasons: Readonly<Record<string, string>>;
  readonly onMiss: 'error' | 'abort' | 'human';
  readonly repeat: 1 | 2 | 3;
  readonly control: boolean;
  readonly limits: Readonly<Record<string, string>>;
  readonly engine: 'own' | 'generic';
  readonly endpoint: string;
}

export const PARAMETERS = ['model', 'temperature', 'top_p', 'seed', 'max_tokens'] as const;
export const LIMITS = ['max_steps', 'max_tokens', 'max_cost', 'max_seconds'] as const;

export const EMPTY: Draft = {
  prompt: null,
  messages: {},
  parameters: {},
  live: false,
  policies: {},
  reasons: {},
  onMiss: 'error',
  repeat: 1,
  control: false,
  limits: { max_steps: '12' },
  engine: 'generic',
  endpoint: '',
};

/** The messages of a recorded request, whatever its form calls them. */
export function messagesIn(request: string): readonly unknown[] {
  const whole = parseJson(request) as Readonly<Record<string, unknown>> | null;
  const found = ['messages', 'input', 'contents'].map(name => whole?.[name]).find(Array.isArray);
  return (found as readonly unknown[] | undefined) ?? [];
}

/** A message as text to edit. */
export function messageText(message: unknown): string {
  return jsonText(message, 2);
}

function parsed(text: string): { readonly value: unknown } | null {
  try {
    return { value: parseJson(text) };
  } catch {
    return null;
  }
}

/** Whether every edited message is JSON. */
export function sound(draft: Draft): boolean {
  return Object.values(draft.messages).every(text => parsed(text) !== null);
}

/** What is sent: only what was changed. */
export function bodyOf(draft: Draft, dialog: ForkDialog): Readonly<Record<string, unknown>> {
  const overrides: Record<string, unknown> = {};
  if (draft.prompt !== null && draft.prompt !== dialog.system_prompt) overrides['system_prompt'] = draft.prompt;
  for (const name of PARAMETERS) {
    const text = draft.parameters[name]?.trim();
    if (text) overrides[name] = name === 'model' ? text : Number(text);
  }
  const edits = editsOf(draft, dialog);
  if (edits.length) overrides['messages'] = edits;
  const choices = Object.entries(draft.policies).filter(([, policy]) => policy !== 'cassette');
  const live = draft.live ? choices.filter(([, policy]) => policy === 'live').map(([name]) => name) : [];
  const tools = Object.fromEntries(choices.filter(([, policy]) => policy !== 'live'));
  return {
    from_step: dialog.from_step,
    overrides,
    live_tools: live.length ? live.map(name => ({ name, reason: draft.reasons[name]?.trim() || null })) : false,
    tools,
    on_miss: draft.onMiss,
    repeat: draft.repeat,
    control: draft.control,
    engine: draft.engine,
    limits: limitsOf(draft),
    endpoint: draft.endpoint || null,
  };
}

function editsOf(draft: Draft, dialog: ForkDialog): readonly Readonly<Record<string, unknown>>[] {
  const recorded = messagesIn(dialog.request);
  return Object.entries(draft.messages).flatMap(([at, text]) => {
    const index = Number(at);
    const now = parsed(text);
    if (!now || jsonText(now.value) === jsonText(recorded[index])) return [];
    return [{ index, op: 'set', message: now.value }];
  });
}

/** Limits as numbers; money stays the text that was typed, so that no digit is lost. */
function limitsOf(draft: Draft): Readonly<Record<string, unknown>> {
  const set = Object.entries(draft.limits).filter(([, text]) => text.trim() !== '');
  return Object.fromEntries(set.map(([name, text]) => [name, name === 'max_cost' ? text.trim() : Number(text)]));
}

/** Names of what a draft changes. */
export function changes(draft: Draft, dialog: ForkDialog): readonly string[] {
  const { overrides } = bodyOf(draft, dialog) as { overrides: object };
  return Object.keys(overrides);
}
