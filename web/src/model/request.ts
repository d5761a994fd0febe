import { jsonText, parseJson } from '../base/json';

type Members = Readonly<Record<string, unknown>>;

/** Members of a request that have an editor of their own; all others are one JSON text. */
const APART = [
  'messages',
  'input',
  'contents',
  'tools',
  'system',
  'instructions',
  'systemInstruction',
  'system_instruction',
] as const;

/** Parameters that have a field of their own, under every name that requests use for them. */
const NAMES = {
  model: ['model'],
  temperature: ['temperature'],
  top_p: ['top_p'],
  seed: ['seed'],
  max_tokens: ['max_tokens', 'max_completion_tokens', 'max_output_tokens'],
} as const satisfies Readonly<Record<string, readonly string[]>>;

export type Parameter = keyof typeof NAMES;
export const PARAMETERS = Object.keys(NAMES) as readonly Parameter[];

export function membersOf(value: unknown): Members | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Members) : null;
}

function listIn(request: string, names: readonly string[]): readonly unknown[] {
  const whole = membersOf(parseJson(request));
  return (names.map(name => whole?.[name]).find(Array.isArray) as readonly unknown[] | undefined) ?? [];
}

/** The messages of a recorded request, whatever its form calls them. */
export function messagesIn(request: string): readonly unknown[] {
  return listIn(request, ['messages', 'input', 'contents']);
}

/** The tools that the model was told of. */
export function toolsIn(request: string): readonly unknown[] {
  const whole = membersOf(parseJson(request));
  const listed = whole?.['tools'] ?? membersOf(whole?.['toolConfig'])?.['tools'];
  return Array.isArray(listed) ? listed : [];
}

/** Name of a tool's definition, in each form that requests have; null for one of the provider's own. */
export function toolName(definition: unknown): string | null {
  const whole = membersOf(definition);
  const name = membersOf(whole?.['function'] ?? whole?.['toolSpec'])?.['name'] ?? whole?.['name'];
  return typeof name === 'string' && name !== '' ? name : null;
}

/** Whether tools can be edited one by one: the form has such a list, and each has a name of its own. */
export function toolsAreNamed(request: string, form: string | null): boolean {
  const names = toolsIn(request).map(toolName);
  return form !== 'gemini' && !names.includes(null) && new Set(names).size === names.length;
}

/** A definition to begin a new tool with, in the form that the request has. */
export function newTool(form: string | null): unknown {
  const schema = { type: 'object', properties: {}, required: [] };
  const named = { name: 'new_tool', description: '' };
  if (form === 'anthropic') return { ...named, input_schema: schema };
  if (form === 'converse') return { toolSpec: { ...named, inputSchema: { json: schema } } };
  if (form === 'responses') return { type: 'function', ...named, parameters: schema };
  return { type: 'function', function: { ...named, parameters: schema } };
}

/** A message to begin a new one with, in the form that the request has. */
export function newMessage(form: string | null): unknown {
  if (form === 'gemini') return { role: 'user', parts: [{ text: '' }] };
  return { role: 'user', content: form === 'converse' ? [{ text: '' }] : '' };
}

/** What a recorded request holds beside prompt, messages, tools and the parameters with a field of their own. */
export function restOf(request: string, form: string | null): Members {
  const whole = membersOf(parseJson(request)) ?? {};
  const fields: readonly string[] = Object.values(NAMES).flat();
  const named = toolsAreNamed(request, form);
  const apart: string[] = APART.filter(name => named || name !== 'tools');
  const config = membersOf(whole['toolConfig']); // of Converse: its tools, and which of them is wanted
  if (form === 'converse' && named && config !== null && Object.keys(config).every(name => name === 'tools'))
    apart.push('toolConfig');
  return Object.fromEntries(Object.entries(whole).filter(([name]) => !apart.includes(name) && !fields.includes(name)));
}

/** The recorded value of a parameter, under whatever name; undefined where the request has none. */
export function recordedParameter(request: string, name: Parameter): unknown {
  const whole = membersOf(parseJson(request)) ?? {};
  return NAMES[name].map(alias => whole[alias]).find(value => value !== undefined && value !== null);
}

/** A value as text to edit. */
export function editable(value: unknown): string {
  return jsonText(value, 2);
}

/** Places of instruction messages beside the one that the system prompt is; they stay when it is changed. */
export function furtherInstructions(request: string, form: string | null): readonly number[] {
  const whole = membersOf(parseJson(request));
  const leads = form === 'chat' || (form === 'responses' && (whole?.['instructions'] ?? null) === null);
  return messagesIn(request).flatMap((message, at) => {
    const role = membersOf(message)?.['role'];
    return at >= (leads ? 1 : 0) && (role === 'system' || role === 'developer') ? [at] : [];
  });
}

/** Whether a message holds reasoning that the provider has signed or encrypted. */
export function isSigned(message: unknown): boolean {
  if (Array.isArray(message)) return message.some(isSigned);
  const members = membersOf(message);
  if (members === null) return false;
  if (members['type'] === 'redacted_thinking') return true;
  const marks = ['signature', 'encrypted_content', 'thought_signature', 'thoughtSignature'];
  if (marks.some(mark => typeof members[mark] === 'string')) return true;
  return ['content', 'parts', 'reasoning_details'].some(name => isSigned(members[name]));
}
