import { isSafeNumber, parse, stringify } from 'lossless-json';

const LONG = /\d{16}/;

/** JSON text as values; an integer that a double cannot hold becomes a bigint, so no digit is lost. */
export function parseJson(text: string): unknown {
  return LONG.test(text) ? parse(text, null, { parseNumber: exact }) : JSON.parse(text);
}

function exact(digits: string): number | bigint {
  return /^-?\d+$/.test(digits) && !isSafeNumber(digits) ? BigInt(digits) : Number(digits);
}

/** Where a text stops being JSON. Lines and columns are counted from 1. */
export interface JsonFault {
  readonly line: number;
  readonly column: number;
  /** What the reader of JSON says, without the place. */
  readonly said: string;
}

/** The first fault of a text that should be JSON, or null. A name that stands twice in an object is one too. */
export function jsonFault(text: string): JsonFault | null {
  try {
    parse(text, null, { parseNumber: digits => finite(digits, text) });
    return null;
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    const position = Number(/at position (\d+)/.exec(said)?.[1] ?? text.length);
    const before = text.slice(0, position).split('\n');
    return {
      line: before.length,
      column: (before.at(-1)?.length ?? 0) + 1,
      said: said.replace(/ at position \d+$/, ''),
    };
  }
}

/** A number that JSON can say again; one beyond all doubles would become null on its way. */
function finite(digits: string, text: string): number | bigint {
  const value = exact(digits);
  if (typeof value === 'bigint' || Number.isFinite(value)) return value;
  const behind = [...tokens(text)].find(([mark]) => mark === digits)?.[1] ?? text.length;
  throw new Error(`Number too large at position ${behind - digits.length}`);
}

/** Values as JSON text, bigints as the digits that they are. */
export function jsonText(value: unknown, indent?: number): string {
  return stringify(value, undefined, indent) ?? 'null';
}

/** Stored JSON text with line breaks and indents. Works on the text, so that every number stays as it was written. */
export function indentJson(text: string, step = '  '): string {
  const out: string[] = [];
  let depth = 0;
  for (const [mark, behind] of tokens(text)) {
    if (mark === '{' || mark === '[') {
      out.push(mark);
      depth += 1;
      if (!closesNext(text, behind)) out.push('\n', step.repeat(depth));
    } else if (mark === '}' || mark === ']') {
      depth -= 1;
      const previous = out.at(-1);
      out.push(...(previous === '{' || previous === '[' ? [] : ['\n', step.repeat(Math.max(depth, 0))]), mark);
    } else if (mark === ',') out.push(',\n', step.repeat(depth));
    else out.push(mark === ':' ? ': ' : mark);
  }
  return out.join('');
}

/** The tokens of a JSON text, each with the place behind it. A string may be of any length: no pattern walks through it. */
function* tokens(text: string): Generator<readonly [mark: string, behind: number]> {
  const token = /"|[{}[\],:]|[^\s{}[\],:"]+/g;
  for (let found = token.exec(text); found; found = token.exec(text)) {
    if (found[0] === '"') token.lastIndex = behindString(text, found.index);
    yield [text.slice(found.index, token.lastIndex), token.lastIndex];
  }
}

function behindString(text: string, from: number): number {
  for (let quote = text.indexOf('"', from + 1); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let at = quote;
    while (text[at - 1] === '\\') at -= 1;
    // An even number of backslashes is so many of them; an odd one belongs to the quote.
    if ((quote - at) % 2 === 0) return quote + 1;
  }
  return text.length;
}

function closesNext(text: string, from: number): boolean {
  const next = /\S/g;
  next.lastIndex = from;
  const found = next.exec(text)?.[0];
  return found === '}' || found === ']';
}
