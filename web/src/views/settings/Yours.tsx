import { type Theme, useChoices } from '../../base/reader';
import { LANGUAGES, type Language, useWords } from '../../base/words';
import { Seg } from '../../widgets/controls';

/** What a reader chooses for this browser alone: language, theme, single keys. */
export function Yours() {
  const { t } = useWords();
  const reader = useChoices();
  const languages = Object.entries(LANGUAGES) as [Language, { name: string }][];
  return (
    <section className="box">
      <h2>{t('setup.yours')}</h2>
      <dl className="kv">
        <dt>{t('app.language')}</dt>
        <dd>
          <Seg<Language>
            label={t('app.language')}
            value={reader.language}
            choices={languages.map(([value, { name }]) => ({ value, label: name, lang: value }))}
            onChoose={reader.chooseLanguage}
          />
        </dd>
        <dt>{t('app.theme')}</dt>
        <dd>
          <Seg<Theme>
            label={t('app.theme')}
            value={reader.theme}
            choices={[
              { value: 'light', label: t('app.light') },
              { value: 'dark', label: t('app.dark') },
            ]}
            onChoose={reader.chooseTheme}
          />
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
