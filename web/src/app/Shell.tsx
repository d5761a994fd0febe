import { useQueryClient } from '@tanstack/react-query';
import { Link, Outlet } from '@tanstack/react-router';
import { useEffect, useMemo, useState } from 'react';
import { useSilence } from '../api/connection';
import { moment } from '../base/format';
import { SingleKeys, useKeys } from '../base/keys';
import { type Reader, ReaderContext, useReader } from '../base/reader';
import { SpeechContext, speaker, useWords } from '../base/words';
import { LanguageChoice, ThemeChoice } from '../widgets/chosen';
import { Mark } from '../widgets/Icon';
import { SlotsContext } from '../widgets/slots';
import { Catcher, Strip } from '../widgets/states';
import { AllKeys } from './AllKeys';
import { Commands } from './Commands';
import { Older } from './Older';
import { PLACES } from './places';

/** The frame of every page: top bar, what is wrong with the connection, the view, the foot. */
export function Shell() {
  const reader = useReader();
  const speech = useMemo(() => ({ language: reader.language, t: speaker(reader.language) }), [reader.language]);
  useEffect(() => {
    document.documentElement.lang = reader.language;
  }, [reader.language]);
  return (
    <SpeechContext value={speech}>
      <SingleKeys value={reader.singleKeys}>
        <ReaderContext value={reader}>
          <Frame reader={reader} />
        </ReaderContext>
      </SingleKeys>
    </SpeechContext>
  );
}

function Frame({ reader }: { readonly reader: Reader }) {
  const { t } = useWords();
  const [foot, setFoot] = useState<HTMLElement | null>(null);
  const [finder, setFinder] = useState<HTMLElement | null>(null);
  const [keysShown, showKeys] = useState(false);
  const slots = useMemo(() => ({ foot, finder }), [foot, finder]);
  const [commandsShown, showCommands] = useState(false);
  useKeys({ '?': () => showKeys(true), 'Ctrl+k': () => showCommands(true) });
  return (
    <SlotsContext value={slots}>
      <a className="skip" href="#content">
        {t('app.skip')}
      </a>
      <header className="top">
        <Link to="/runs" className="brand">
          <Mark />
          Agent Loupe
        </Link>
        <nav className="nav" aria-label={t('app.main')}>
          {PLACES.map(([to, word]) => (
            <Link key={to} to={to} activeProps={{ 'aria-current': 'page' }} search={{}}>
              {t(word)}
            </Link>
          ))}
        </nav>
        <span className="grow" />
        <span className="note hide-n nw">{t('app.local')}</span>
        <div ref={setFinder} />
        <LanguageChoice reader={reader} />
        <ThemeChoice reader={reader} />
      </header>
      <Connection />
      <Older />
      <div id="content" className="content" tabIndex={-1}>
        <Catcher>
          <Outlet />
        </Catcher>
      </div>
      <footer className="foot" ref={setFoot} />
      {commandsShown && <Commands reader={reader} onKeys={() => showKeys(true)} onClose={() => showCommands(false)} />}
      {keysShown && <AllKeys reader={reader} onClose={() => showKeys(false)} />}
    </SlotsContext>
  );
}

const ASK_AGAIN = 2000;

/** While the server is silent: since when, and asking until it answers; then everything is asked anew. */
function Connection() {
  const { t, language } = useWords();
  const since = useSilence();
  const queries = useQueryClient();
  useEffect(() => {
    if (since === null) return;
    const timer = setInterval(() => void queries.invalidateQueries({ type: 'active' }), ASK_AGAIN);
    return () => clearInterval(timer);
  }, [since, queries]);
  return since && <Strip>{t('app.offline', { time: moment(since.toISOString(), language) ?? '' })}</Strip>;
}
