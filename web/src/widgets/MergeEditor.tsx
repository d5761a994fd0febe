import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { json } from '@codemirror/lang-json';
import { goToNextChunk, goToPreviousChunk, MergeView } from '@codemirror/merge';
import { EditorState } from '@codemirror/state';
import { EditorView, keymap, lineNumbers } from '@codemirror/view';
import { useEffect, useRef } from 'react';
import { LOOK } from './JsonView';

interface MergeEditorProps {
  readonly original: string;
  readonly text: string;
  readonly labels: readonly [string, string];
  readonly json?: boolean;
  readonly onChange: (text: string) => void;
}

const COLOURS = EditorView.theme({
  '&.cm-merge-b .cm-changedLine': { backgroundColor: 'var(--accent-tint)' },
  '&.cm-merge-a .cm-changedLine': { backgroundColor: 'var(--kept-tint)' },
  '&.cm-merge-b .cm-changedText': {
    background: 'none',
    borderBottom: '1.5px solid var(--accent)',
    color: 'var(--accent-2)',
  },
  '&.cm-merge-a .cm-changedText': { background: 'none', textDecoration: 'line-through', color: 'var(--kept)' },
  '.cm-changeGutter': { display: 'none' },
});

/** A text beside what was recorded: left stays, right is edited. Alt with the arrows goes from change to change. */
export default function MergeEditor({ original, text, labels, json: isJson = false, onChange }: MergeEditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const first = useRef(text);
  const tell = useRef(onChange);
  useEffect(() => {
    tell.current = onChange;
  });
  const [left, right] = labels;
  useEffect(() => {
    if (!host.current) return;
    const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: 'open' });
    const common = [LOOK, COLOURS, lineNumbers(), ...(isJson ? [json()] : [])];
    const view = new MergeView({
      parent: root,
      root,
      gutter: false,
      a: {
        doc: original,
        extensions: [...common, EditorState.readOnly.of(true), EditorView.contentAttributes.of({ 'aria-label': left })],
      },
      b: {
        doc: first.current,
        extensions: [
          ...common,
          history(),
          keymap.of([
            { key: 'Alt-ArrowDown', run: goToNextChunk },
            { key: 'Alt-ArrowUp', run: goToPreviousChunk },
            ...defaultKeymap.filter(binding => binding.key !== 'Mod-Enter'),
            ...historyKeymap,
          ]),
          EditorView.updateListener.of(update => {
            if (update.docChanged) tell.current(update.state.doc.toString());
          }),
          EditorView.contentAttributes.of({ 'aria-label': right }),
        ],
      },
    });
    return () => view.destroy();
  }, [original, left, right, isJson]);
  return <div className="editor" ref={host} />;
}
