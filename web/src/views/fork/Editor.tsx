import { lazy, type ReactNode, Suspense, useState } from 'react';
import { jsonFault } from '../../base/json';
import { useWords } from '../../base/words';
import { lineCount, objectFault, type Problem } from '../../model/draft';
import { Loading } from '../../widgets/states';
import { FaultText } from './FaultText';

const MergeEditor = lazy(() => import('../../widgets/MergeEditor'));

interface EditorProps {
  readonly original: string;
  /** The text as edited; null: as recorded. */
  readonly text: string | null;
  /** What the text has to be. */
  readonly form: 'text' | 'object' | 'value';
  readonly name: string;
  readonly onChange: (text: string | null) => void;
  readonly children?: ReactNode;
}

/** What was recorded beside what is sent instead, with the lines that differ and the place of a fault. */
export function Editor({ original, text, form, name, onChange, children }: EditorProps) {
  const { t } = useWords();
  // Counts reverts: the editor begins anew with the recorded text.
  const [round, setRound] = useState(0);
  const shown = text ?? original;
  const changed = shown !== original;
  const lines = changed ? lineCount(original, shown) : null;
  return (
    <>
      <div className={`merge ${changed ? 'changed' : ''}`}>
        <div className="mh">
          <span className="ell">
            {name}, {t('fork.recorded')}
          </span>
        </div>
        <div className="mh">
          <span className="ell">
            {name}, {t('fork.edited')}
          </span>
          <span className="grow" />
          {lines && (
            <span className="accent">
              {t('fork.lines', lines)} ·{' '}
              <button
                type="button"
                className="more"
                onClick={() => {
                  onChange(null);
                  setRound(round + 1);
                }}
              >
                {t('fork.revert')}
              </button>
            </span>
          )}
          {children}
        </div>
        <Suspense fallback={<Loading rows={4} />}>
          <MergeEditor
            key={round}
            original={original}
            text={shown}
            json={form !== 'text'}
            labels={[`${name}, ${t('fork.recorded')}`, `${name}, ${t('fork.edited')}`]}
            onChange={next => onChange(next === original ? null : next)}
          />
        </Suspense>
      </div>
      {changed && <Fault fault={faultIn(shown, form)} />}
    </>
  );
}

function faultIn(text: string, form: EditorProps['form']): Problem['fault'] | null {
  if (form === 'text') return null;
  return form === 'object' ? objectFault(text) : jsonFault(text);
}

function Fault({ fault }: { readonly fault: Problem['fault'] | null }) {
  return fault === null ? null : (
    <p className="st error" role="status">
      <FaultText fault={fault} />
    </p>
  );
}
