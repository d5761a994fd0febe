import type { ComparedRow } from '../api/types';
import type { WordKey } from '../base/words';

/** What a difference means, as a sentence about the two steps. */
export function meaningOf(row: ComparedRow): WordKey {
  const model = (row.left ?? row.right)?.kind === 'llm';
  const answered = row.status === 'output_differs' || row.notes.includes('output differs');
  const asked = row.status === 'input_differs' || row.notes.includes('input differs');
  switch (row.status) {
    case 'only_left':
      return 'compare.means.onlyA';
    case 'only_right':
      return 'compare.means.onlyB';
    case 'error_one_side':
      if (row.right?.source === 'miss') return 'compare.means.missB';
      if (row.left?.source === 'miss') return 'compare.means.missA';
      return row.right?.error_class ? 'compare.means.errorB' : 'compare.means.errorA';
    default:
      if (model && answered) return asked ? 'compare.means.bothModel' : 'compare.means.outputModel';
      if (model) return 'compare.means.inputModel';
      return asked ? 'compare.means.inputTool' : 'compare.means.outputTool';
  }
}

/** A call to which the cassette had no answer. */
export interface Miss {
  readonly name: string;
  readonly idx: number;
  readonly row: number;
}

/** The misses of one side, in order. */
export function missesOf(rows: readonly ComparedRow[], side: 'left' | 'right'): readonly Miss[] {
  return rows.flatMap(row => {
    const step = row[side];
    return step?.source === 'miss' ? [{ name: step.name, idx: step.idx, row: row.row }] : [];
  });
}
