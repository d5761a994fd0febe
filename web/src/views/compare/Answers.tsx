import type { ComparedHead } from '../../api/types';
import { jsonText } from '../../base/json';
import { useWords } from '../../base/words';
import { type Word, wordsApart } from '../../model/diff';
import { Words } from '../../widgets/diff';
import { RunText } from '../../widgets/text';

/** The final answers of both sides, word by word: each side shows what only it says. */
export function Answers({ answers }: { readonly answers: ComparedHead['answers'] }) {
  const { t } = useWords();
  const [left, right] = [textOf(answers.left), textOf(answers.right)];
  const words = left === null || right === null ? null : wordsApart(left, right);
  return (
    <section className="ab answers2" aria-label={t('compare.answer')}>
      <Answer side="A" text={left} words={words} mine="-" />
      <span className="mid note">{words && t('compare.words')}</span>
      <Answer side="B" text={right} words={words} mine="+" />
    </section>
  );
}

function textOf(answer: unknown): string | null {
  return answer === null ? null : typeof answer === 'string' ? answer : jsonText(answer, 2);
}

interface AnswerProps {
  readonly side: 'A' | 'B';
  readonly text: string | null;
  readonly words: readonly Word[] | null;
  readonly mine: '-' | '+';
}

function Answer({ side, text, words, mine }: AnswerProps) {
  const { t } = useWords();
  const pieces = words?.filter(([op]) => op === '=' || op === mine);
  return (
    <div>
      <div className="row">
        <span className={side === 'A' ? 'side' : 'side bb'}>{side}</span>
        <span className="lbl">{t('compare.answer')}</span>
      </div>
      {text === null && <p className="dim">{t('compare.noAnswer')}</p>}
      {text !== null && <p className="answer">{pieces ? <Words words={pieces} whole /> : <RunText>{text}</RunText>}</p>}
    </div>
  );
}
