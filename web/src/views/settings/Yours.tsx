import { useChoices } from '../../base/reader';
import { useWords } from '../../base/words';
import { LanguageChoice, ThemeChoice } from '../../widgets/chosen';

/** What a reader chooses for this browser alone: language, theme, single keys. */
export function Yours() {
  const { t } = useWords();
  const reader = useChoices();
  return (
    <section className="box">
      <h2>{t('setup.yours')}</h2>
      <dl className="kv">
        <dt>{t('app.language')}</dt>
        <dd>
          <LanguageChoice reader={reader} />
        </dd>
        <dt>{t('app.theme')}</dt>
        <dd>
          <ThemeChoice reader={reader} />
        </dd>
        <dt>{t('setup.keys')}</dt>
        <dd>
          <label>
            <input
              type="checkbox"
              checked={reader.singleKeys}
              onChange={event => reader.chooseSingleKeys(event.target.checked)}
            />{' '}
            {t('app.singleKeys')}
          </label>
        </dd>
      </dl>
      <p className="note">{t('setup.yoursSay')}</p>
    </section>
  );
}
