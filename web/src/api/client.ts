import { jsonText, parseJson } from '../base/json';
import { answered, unanswered } from './connection';

/** What the server says when it refuses: a stable word, a line for people, and the way out. */
export class ApiError extends Error {
  override readonly name = 'ApiError';

  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
    readonly hint: string | null = null,
    readonly place: string | null = null,
    readonly retryAfter: number | null = null,
  ) {
    super(message);
  }
}

/** The server gave no answer at all. */
export class Unreachable extends Error {
  override readonly name = 'Unreachable';
}

type Value = string | number | boolean | null | undefined;
export type Query = Readonly<Record<string, Value | readonly string[]>>;

/** `/api/runs` and what is asked of it as one address; empty values are left out, lists are repeated. */
export function address(path: string, query: Query = {}): string {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one != null && one !== '' && one !== false) asked.append(name, one === true ? '1' : String(one));
    }
  }
  return asked.size ? `${path}?${asked}` : path;
}

/** A path with its parts made safe: `` path`/api/runs/${id}` ``. */
export function path(texts: TemplateStringsArray, ...parts: readonly (string | number)[]): string {
  return texts.reduce((whole, text, at) => whole + encodeURIComponent(parts[at - 1] ?? '') + text);
}

async function ask(target: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(target, { credentials: 'same-origin', ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    unanswered();
    throw new Unreachable(target);
  }
  answered();
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response: Response): Promise<ApiError> {
  const text = await response.text();
  const said = errorOf(text);
  const after = Number(response.headers.get('Retry-After'));
  return new ApiError(
    response.status,
    typeof said['reason'] === 'string' ? said['reason'] : 'unknown',
    typeof said['message'] === 'string' ? said['message'] : `${response.status} ${response.statusText}`,
    typeof said['hint'] === 'string' ? said['hint'] : null,
    typeof said['place'] === 'string' ? said['place'] : null,
    after > 0 ? after : null,
  );
}

function errorOf(text: string): Record<string, unknown> {
  try {
    const body = JSON.parse(text) as { error?: unknown } | null;
    return typeof body?.error === 'object' && body.error !== null ? (body.error as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** What a read answers, with every integer exact. */
export async function get<T>(target: string, signal?: AbortSignal): Promise<T> {
  const response = await ask(target, signal ? { signal } : {});
  return parseJson(await response.text()) as T;
}

/** A stored body as the text that it is. */
export async function getText(target: string, signal?: AbortSignal): Promise<string> {
  return (await ask(target, signal ? { signal } : {})).text();
}

/** What a write answers; null where it answers nothing. */
export async function send<T>(method: 'POST' | 'PUT' | 'DELETE', target: string, body?: unknown): Promise<T> {
  const form = body instanceof FormData;
  const headers: Record<string, string> = { 'X-Loupe': '1' };
  if (body !== undefined && !form) headers['Content-Type'] = 'application/json';
  const content = body === undefined ? null : form ? body : jsonText(body);
  const text = await (await ask(target, { method, headers, body: content })).text();
  return (text ? parseJson(text) : null) as T;
}
