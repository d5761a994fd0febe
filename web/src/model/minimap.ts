/** Heights of columns in pixels: the square root of tokens, so that small ones can still be seen. */
export function heights(columns: readonly { readonly tokens: number }[], most: number): readonly number[] {
  const top = Math.max(1, ...columns.map(column => column.tokens));
  return columns.map(({ tokens }) => Math.max(2, Math.sqrt(tokens / top) * most));
}

/** Number of the column at a place of the picture. */
export function columnAt(x: number, width: number, count: number): number {
  return Math.min(count - 1, Math.max(0, Math.floor((x / Math.max(1, width)) * count)));
}
