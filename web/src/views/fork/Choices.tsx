import { useWords } from '../../base/words';
import { LIMITS } from '../../model/draft';
import { Seg } from '../../widgets/controls';
import type { PartProps } from './ForkPage';

const MISSES = ['error', 'abort', 'human'] as const;

/** What happens on a miss, how often the fork is made, and where it ends. */
export function Choices({ draft, onChange }: Omit<PartProps, 'dialog'>) {
  const { t } = useWords();
  return (
    <div className="sec choices">
      <div className="row wrap">
        <fieldset className="opt">
          <legend className="lbl">{t('fork.onMiss')}</legend>
          {MISSES.map(name => (
            <label key={name}>
              <input
                type="radio"
                name="miss"
                checked={draft.onMiss === name}
                onChange={() => onChange({ onMiss: name })}
              />
              {t(`fork.miss.${name}`)}
            </label>
          ))}
        </fieldset>
        <span className="grow" />
        <div>
          <span className="lbl">{t('fork.repeat')}</span>
          <div className="row">
            <Seg
              label={t('fork.repeat')}
              value={String(draft.repeat)}
              choices={['1', '2', '3'].map(value => ({ value, label: value }))}
              onChoose={value => {
                const repeat = Number(value) as 1 | 2 | 3;
                onChange({ repeat, control: repeat > 1 });
              }}
            />
            <label>
              <input
                type="checkbox"
                checked={draft.control}
                onChange={event => onChange({ control: event.target.checked })}
              />{' '}
              {t('fork.control')}
            </label>
          </div>
        </div>
      </div>
      <div className="opt">
        <label>
          <input
            type="checkbox"
            checked={draft.faithful}
            onChange={event => onChange({ faithful: event.target.checked })}
          />
          {t('fork.faithful')}
        </label>
        {draft.engine === 'own' && (
          <label>
            <input
              type="checkbox"
              checked={draft.codeChanged}
              onChange={event => onChange({ codeChanged: event.target.checked })}
            />
            {t('fork.codeChanged')}
          </label>
        )}
      </div>
      <div className="row wrap limits">
        <span className="lbl">{t('fork.limits')}</span>
        {LIMITS.map(name => (
          <label key={name} className="row">
            <span className="t2">{t(`fork.limit.${name}`)}</span>
            <input
              className="inp s"
              inputMode="decimal"
              value={draft.limits[name] ?? ''}
              onChange={event => onChange({ limits: { ...draft.limits, [name]: event.target.value } })}
            />
          </label>
        ))}
      </div>
    </div>
  );
}
