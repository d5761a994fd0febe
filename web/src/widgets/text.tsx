import { useState } from 'react';
import { count } from '../base/format';
import { pieces } from '../base/visible';
import { useWords } from '../base/words';
import { sentenceIn } from '../base/words/said';
import { Icon } from './Icon';

/** Text of a run, as text: nothing in it is markup, and characters that cannot be seen are shown as signs. */
export function RunText({ children }: { readonly children: string }) {
  const cut = pieces(children);
  const first = cut[0];
  if (cut.length === 1 && first && 'text' in first) return <bdi>{first.text}</bdi>;
  return (
    <bdi>
      {cut.map((piece, at) =>
        'text' in piece ? (
          piece.text
        ) : (
          // biome-ignore lint/suspicious/noArrayIndexKey: pieces of one text have no other name than their place
          <span key={at} className="sign" title={piece.code}>
            {piece.sign}
          </span>
        ),
      )}
    </bdi>
  );
}

/** A fixed sentence of the server, in the language of the page as far as that is known. */
export function Said({ children }: { readonly children: string }) {
  const { language } = useWords();
  return <RunText>{sentenceIn(language, children)}</RunText>;
}

/** Several of them in one line. */
export function AllSaid({ texts }: { readonly texts: readonly string[] }) {
  return texts.map((text, at) => (
    <span key={text}>
      {at > 0 && ' · '}
      <Said>{text}</Said>
    </span>
  ));
}

/** A number as the language writes it; unknown is the word, never 0. */
export function Count({ value }: { readonly value: number | null | undefined }) {
  const { language } = useWords();
  const text = count(value, language);
  return text ?? <Unknown />;
}

export function Unknown() {
  const { t } = useWords();
  return <span className="dim">{t('state.unknown')}</span>;
}

/** A command to type, with a button that copies it. */
export function Command({ children }: { readonly children: string }) {
  return (
    <div className="cmd">
      <code className="grow ell">{children}</code>
      <Copy text={children} />
    </div>
  );
}

/** Copies a text; `label` replaces the word on the button for those who hear it. */
export function Copy({ text, label }: { readonly text: string; readonly label?: string }) {
  const { t } = useWords();
  const [copied, setCopied] = useState(false);
  const copy = () => {
    void navigator.clipboard.writeText(text).then(() => setCopied(true));
  };
  return (
    <button
      type="button"
      className="btn s q"
      onClick={copy}
      onBlur={() => setCopied(false)}
      {...(label ? { 'aria-label': label, title: label } : {})}
    >
      <Icon sign="copy" />
      {copied ? t('state.copied') : label ? null : t('state.copy')}
    </button>
  );
}

export function Kbd({ keys }: { readonly keys: readonly string[] }) {
  return (
    <>
      {keys.map((key, at) => (
        <span key={key} className="contents">
          {at > 0 && key === '6' && '–'}
          <kbd>{SHOWN[key] ?? key}</kbd>
        </span>
      ))}
    </>
  );
}

const SHOWN: Readonly<Record<string, string>> = { Escape: 'Esc', ArrowUp: '↑', ArrowDown: '↓' };
