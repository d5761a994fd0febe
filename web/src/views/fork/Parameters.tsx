import { jsonText } from '../../base/json';
import { useWords, type WordKey } from '../../base/words';
import { PARAMETERS, type Parameter, recordedParameter } from '../../model/request';
import { RunText } from '../../widgets/text';
import type { PartProps } from './ForkPage';

const RANGES: Partial<
  Readonly<Record<Parameter, { readonly step: number; readonly min: number; readonly max?: number }>>
> = {
  temperature: { step: 0.1, min: 0, max: 2 },
  top_p: { step: 0.1, min: 0, max: 1 },
  max_tokens: { step: 1, min: 1 },
};

/** Who is asked, and the parameters of the request; blank means unchanged. */
export function Parameters({ dialog, draft, onChange }: PartProps) {
  const { t } = useWords();
  const recorded = (name: Parameter) => {
    const value = recordedParameter(dialog.request, name) ?? (name === 'model' ? dialog.model : undefined);
    if (value === undefined || value === null) return t('fork.notSet');
    return t('fork.unchanged', { value: typeof value === 'string' ? value : jsonText(value) });
  };
  const { endpoints } = dialog;
  const asked = endpoints.find(one => one.name === draft.endpoint) ?? endpoints[0];
  return (
    <div className="sec">
      <div className="pg">
        {PARAMETERS.map(name => (
          <label key={name} className="field">
            <span className="lbl">{t(`fork.${name}` as WordKey)}</span>
            <input
              className="inp s"
              value={draft.parameters[name] ?? ''}
              placeholder={recorded(name)}
              {...(name === 'model' ? {} : { type: 'number', step: 1, ...RANGES[name] })}
              onChange={event => onChange({ parameters: { ...draft.parameters, [name]: event.target.value } })}
            />
          </label>
        ))}
      </div>
      {draft.engine === 'generic' && asked && (
        <p className="row note endpoint">
          {endpoints.length > 1 ? (
            <label className="row">
              {t('fork.endpoint')}
              <select
                className="inp s"
                value={draft.endpoint}
                onChange={event => onChange({ endpoint: event.target.value })}
              >
                {endpoints.map(one => (
                  <option key={one.name} value={one.name}>
                    {one.name || 'LLM_BASE_URL'}
                  </option>
                ))}
              </select>
            </label>
          ) : (
            <span>{t('fork.endpoint')}</span>
          )}
          <code className="ell">
            <RunText>{asked.base_url}</RunText>
          </code>
          {asked.key_variable && <span>{t('fork.keyFrom', { variable: asked.key_variable })}</span>}
        </p>
      )}
      <p className="note">{t('fork.blank')}</p>
    </div>
  );
}
