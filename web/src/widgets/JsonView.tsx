import { json } from '@codemirror/lang-json';
import { codeFolding, foldGutter, foldKeymap, HighlightStyle, syntaxHighlighting } from '@codemirror/language';
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search';
import { EditorState, type Extension } from '@codemirror/state';
import { EditorView, highlightSpecialChars, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { useEffect, useRef } from 'react';

const COLOURS = HighlightStyle.define([
  { tag: tags.propertyName, color: 'var(--text-2)' },
  { tag: tags.string, color: 'var(--text)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--accent)' },
]);

/** The look of every editor of the page, from its tokens. */
export const LOOK: Extension = [
  EditorView.theme({
    '&': { font: 'inherit', backgroundColor: 'var(--surface)', color: 'var(--text)' },
    '&.cm-focused': { outline: '2px solid var(--focus)', outlineOffset: '-2px' },
    '.cm-scroller': { fontFamily: 'var(--mono)', fontSize: '12px', lineHeight: '18px' },
    '.cm-gutters': { backgroundColor: 'var(--surface-2)', color: 'var(--text-3)', border: '0' },
    '.cm-panels': { backgroundColor: 'var(--surface-2)', color: 'var(--text)' },
    '.cm-textfield': { backgroundColor: 'var(--surface)', border: '1px solid var(--ctl)', color: 'inherit' },
    '.cm-button': { backgroundImage: 'none', backgroundColor: 'var(--surface)', border: '1px solid var(--ctl)' },
    '.cm-searchMatch': { backgroundColor: 'var(--accent-tint)', outline: '1px solid var(--accent-line)' },
    '.cm-specialChar': { color: 'var(--miss)' },
    '.cm-foldPlaceholder': { backgroundColor: 'var(--kept-tint)', color: 'var(--kept)', border: '0' },
    '.cm-selectionBackground, &.cm-focused .cm-selectionBackground': { backgroundColor: 'var(--sunken)' },
    '.cm-cursor': { borderLeftColor: 'var(--accent)' },
  }),
  syntaxHighlighting(COLOURS),
  highlightSpecialChars(),
  EditorView.lineWrapping,
];

/**
 * A big JSON text to read and search (Ctrl F). It lives in a shadow tree: there an editor may bring its own styles where
 * the page's content policy forbids style elements.
 */
export function JsonView({ text, label }: { readonly text: string; readonly label: string }) {
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!host.current) return;
    const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: 'open' });
    const extensions = [
      LOOK,
      json(),
      lineNumbers(),
      codeFolding(),
      foldGutter(),
      search({ top: true }),
      highlightSelectionMatches(),
      keymap.of([...searchKeymap, ...foldKeymap]),
      EditorState.readOnly.of(true),
      EditorView.contentAttributes.of({ 'aria-label': label }),
    ];
    const view = new EditorView({ state: EditorState.create({ doc: text, extensions }), parent: root, root });
    return () => view.destroy();
  }, [text, label]);
  return <div className="editor" ref={host} />;
}
