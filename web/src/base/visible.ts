/** A run's text in pieces: plain text, and characters that would be invisible or would turn the text around. */
export type Piece = { readonly text: string } | { readonly sign: string; readonly code: string };

// A joiner is a sign only where it joins nothing. Controls but tab and newline, zero-width and bidi marks, line separators, tags, variation beyond emoji, the byte order mark, lone halves.
const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|\u034f|(?<![\p{L}\p{M}\p{Extended_Pictographic}]|\ufe0f)[\u200c\u200d]|[\u{e0000}-\u{e0fff}]|\p{Surrogate}/gu;

/** `text` cut at every character that cannot be seen, each of these as a sign with its code. */
export function pieces(text: string): readonly Piece[] {
  const whole = text.replaceAll('\r\n', '\n');
  const found: Piece[] = [];
  let from = 0;
  for (const match of whole.matchAll(UNSEEN)) {
    if (match.index > from) found.push({ text: whole.slice(from, match.index) });
    found.push(sign(match[0]));
    from = match.index + match[0].length;
  }
  const rest = whole.slice(from);
  if (rest || !found.length) found.push({ text: rest });
  return found;
}

function sign(character: string): Piece {
  const code = (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0');
  return { sign: code, code: `U+${code}` };
}

/** `text` for places that take nothing but text, such as titles of windows: what cannot be seen is written as its code. */
export function plain(text: string): string {
  return pieces(text)
    .map(piece => ('text' in piece ? piece.text : `[${piece.code}]`))
    .join('');
}
