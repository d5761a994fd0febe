import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useId, useState } from 'react';
import { address, get } from '../api/client';
import type { RunPage } from '../api/types';
import type { Reader } from '../base/reader';
import { LANGUAGES, type Language, useWords } from '../base/words';
import { Dialog } from '../widgets/controls';
import { RunText } from '../widgets/text';
import { PLACES } from './places';

interface Choice {
  readonly id: string;
  readonly name: string;
  readonly note?: string;
  readonly does: () => void;
}

interface CommandsProps {
  readonly reader: Reader;
  readonly onKeys: () => void;
  readonly onClose: () => void;
}

const RUNS = 8;

/** Go anywhere and do anything of the page by typing a part of its name; runs are found by name and id. */
export function Commands({ reader, onKeys, onClose }: CommandsProps) {
  const { t } = useWords();
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const list = useId();
  const wanted = text.trim();
  const fixed = useFixed(reader, onKeys).filter(one => one.name.toLowerCase().includes(wanted.toLowerCase()));
  const choices = [...fixed, ...useRuns(wanted)];
  const chosen = Math.min(at, choices.length - 1);
  const run = (choice: Choice | undefined) => {
    if (!choice) return;
    onClose();
    choice.does();
  };
  const pressed: Readonly<Record<string, () => void>> = {
    ArrowDown: () => setAt((chosen + 1) % Math.max(1, choices.length)),
    ArrowUp: () => setAt((chosen - 1 + choices.length) % Math.max(1, choices.length)),
    Enter: () => run(choices[chosen]),
  };
  return (
    <Dialog title={t('command.title')} onClose={onClose}>
      <input
        data-first
        className="inp"
        role="combobox"
        aria-expanded="true"
        aria-controls={list}
        aria-activedescendant={choices[chosen] ? `${list}-${chosen}` : undefined}
        aria-label={t('command.type')}
        placeholder={t('command.type')}
        autoComplete="off"
        spellCheck={false}
        value={text}
        onChange={event => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={event => {
          const does = event.nativeEvent.isComposing ? undefined : pressed[event.key];
          if (!does) return;
          event.preventDefault();
          does();
        }}
      />
      <div role="listbox" id={list} aria-label={t('command.title')} className="commands" tabIndex={-1}>
        {choices.map((choice, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the field above has the focus and the keys
          <div
            key={choice.id}
            id={`${list}-${index}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === chosen}
            className="item"
            onClick={() => run(choice)}
          >
            <span className="grow ell">
              <RunText>{choice.name}</RunText>
            </span>
            {choice.note && <span className="dim mono">{choice.note}</span>}
          </div>
        ))}
      </div>
      {choices.length === 0 && <p className="note">{t('command.none', { q: wanted })}</p>}
    </Dialog>
  );
}

/** What is always there: places, language, theme, keys. */
function useFixed(reader: Reader, onKeys: () => void): readonly Choice[] {
  const { t } = useWords();
  const navigate = useNavigate();
  const places = PLACES.map(([to, word]) => ({
    id: to,
    name: t('command.go', { place: t(word) }),
    does: () => void navigate({ to, search: {} }),
  }));
  const other = reader.theme === 'dark' ? ('light' as const) : ('dark' as const);
  const languages = (Object.keys(LANGUAGES) as Language[]).filter(language => language !== reader.language);
  return [
    ...places,
    { id: 'theme', name: `${t('app.theme')}: ${t(`app.${other}`)}`, does: () => reader.chooseTheme(other) },
    ...languages.map(language => ({
      id: language,
      name: `${t('app.language')}: ${LANGUAGES[language].name}`,
      does: () => reader.chooseLanguage(language),
    })),
    { id: 'keys', name: t('app.keys'), note: '?', does: onKeys },
  ];
}

/** Runs that the text names. */
function useRuns(wanted: string): readonly Choice[] {
  const navigate = useNavigate();
  const found = useQuery({
    queryKey: ['runs', 'command', wanted],
    queryFn: ({ signal }) => get<RunPage>(address('/api/runs', { q: wanted, limit: RUNS }), signal),
    enabled: wanted.length > 1,
  });
  if (wanted.length < 2) return [];
  return (found.data?.items ?? []).map(run => ({
    id: run.id,
    name: run.name,
    note: run.id,
    does: () => void navigate({ to: '/runs/$id', params: { id: run.id }, search: {} }),
  }));
}
