import type { Call, Card } from '../api/types';
import { parseJson } from '../base/json';

/** One step of the road in one line: what was called, and what came of it. */
export interface Line {
  readonly step: number;
  readonly kind: 'llm' | 'tool' | 'agent' | 'other';
  readonly name: string;
  readonly given: string;
  readonly result: string | null;
  readonly failed: boolean;
  /** Names of the tools that a model step asked for, in order. */
  readonly asked: readonly string[];
}

/** Cards of a transcript as lines, one for each step that they show, in order. */
export function linesOf(cards: readonly Card[]): readonly Line[] {
  return cards.flatMap(linesIn).sort((a, b) => a.step - b.step);
}

function linesIn(card: Card): readonly Line[] {
  const none = { given: '', result: null, failed: false, asked: [] };
  switch (card.card) {
    case 'model': {
      const asked = card.calls.map(call => call.name);
      const model: Line = { ...none, step: card.step, kind: 'llm', name: card.name, given: card.text.text, asked };
      return [model, ...card.calls.flatMap(lineOfCall)];
    }
    case 'agent':
      return [{ ...none, step: card.step, kind: 'agent', name: card.name, result: card.text.text }];
    case 'step':
    case 'limit': {
      const kind = card.kind === 'tool' ? 'tool' : 'other';
      const failed = card.error !== null;
      const result = card.error?.text ?? card.output.text;
      return [{ step: card.step, kind, name: card.name, given: card.input.text, result, failed, asked: [] }];
    }
    default:
      return [];
  }
}

function lineOfCall(call: Call): readonly Line[] {
  if (call.step === null) return [];
  const result = call.error?.text ?? call.result?.text ?? null;
  return [
    {
      step: call.step,
      kind: 'tool',
      name: call.name,
      given: call.arguments.text,
      result,
      failed: call.error !== null,
      asked: [],
    },
  ];
}

/** `get_weather ×2, calculate`: names in order, equal ones one after another counted. */
export function namesOf(names: readonly string[]): string {
  const runs: { name: string; n: number }[] = [];
  for (const name of names) {
    const last = runs.at(-1);
    if (last?.name === name) last.n += 1;
    else runs.push({ name, n: 1 });
  }
  return runs.map(({ name, n }) => (n > 1 ? `${name} ×${n}` : name)).join(', ');
}

/** Marks of types in a recorded result, such as `$datetime`: an edited result is plain JSON and has none. */
export function typesIn(result: string): readonly string[] {
  const found = new Set<string>();
  const walk = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return;
    for (const [name, inner] of Object.entries(value)) {
      if (/^\$[a-z_]+$/.test(name)) found.add(name);
      walk(inner);
    }
  };
  walk(parseJson(result));
  return [...found].sort();
}
