import type { Reader, Theme } from '../base/reader';
import { LANGUAGES, type Language, useWords } from '../base/words';
import { Seg } from './controls';

interface ChoiceProps {
  readonly reader: Reader;
}

const languages = Object.entries(LANGUAGES) as [Language, { name: string }][];

/** In which language the page speaks. */
export function LanguageChoice({ reader }: ChoiceProps) {
  const { t } = useWords();
  return (
    <Seg<Language>
      label={t('app.language')}
      value={reader.language}
      choices={languages.map(([value, { name }]) => ({ value, label: name, lang: value }))}
      onChoose={reader.chooseLanguage}
    />
  );
}

/** Light or dark. */
export function ThemeChoice({ reader }: ChoiceProps) {
  const { t } = useWords();
  return (
    <Seg<Theme>
      label={t('app.theme')}
      value={reader.theme}
      choices={[
        { value: 'light', label: t('app.light') },
        { value: 'dark', label: t('app.dark') },
      ]}
      onChoose={reader.chooseTheme}
    />
  );
}
