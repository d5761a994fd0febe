import { useWords } from '../../base/words';
import { PARAMETERS } from '../../model/draft';
import type { PartProps } from './ForkPage';

/** Parameters of the request; blank means unchanged. */
export function Parameters({ dialog, draft, onChange }: PartProps) {
  const { t } = useWords();
  const names = { model: t('fork.model'), temperature: t('fork.temperature') } as Readonly<Record<string, string>>;
  const recorded = (name: string) => {
    const value = name === 'model' ? dialog.model : (dialog.parameters[name] ?? null);
    return value === null ? t('fork.notSet') : t('fork.unchanged', { value: String(value) });
  };
  return (
    <div className="sec">
      <div className="pg">
        {PARAMETERS.map(name => (
          <label key={name} className="field">
            <span className="lbl">{names[name] ?? name}</span>
            <input
              className="inp"
              value={draft.parameters[name] ?? ''}
              placeholder={recorded(name)}
              {...(name === 'model'
                ? {}
                : { type: 'number', step: name === 'temperature' || name === 'top_p' ? 0.1 : 1, min: 0 })}
              {...(name === 'temperature' ? { max: 2 } : {})}
              onChange={event => onChange({ parameters: { ...draft.parameters, [name]: event.target.value } })}
            />
          </label>
        ))}
      </div>
      <p className="note">{t('fork.blank')}</p>
    </div>
  );
}
