import { useQuery } from '@tanstack/react-query';
import { get } from '../../api/client';
import type { About, Settings, Workers } from '../../api/types';
import type { Hint } from '../../base/keys';
import { useWords } from '../../base/words';
import { FindRuns, Foot } from '../../widgets/slots';
import { Failure, Loading, Strip } from '../../widgets/states';
import { Tag } from '../../widgets/tags';
import { Command, Count, RunText } from '../../widgets/text';
import { Items } from './Items';
import { Live } from './Live';
import { NotSet, Part } from './Part';
import { Prices } from './Prices';
import { Yours } from './Yours';

const HINTS: readonly Hint[] = [{ keys: ['?'], does: 'key.all' }];

/** What is set, and where each setting comes from. Keys are never shown, only the names of the variables that hold them. */
export function SettingsPage() {
  const { t } = useWords();
  const found = useQuery({
    queryKey: ['settings'],
    queryFn: ({ signal }) => get<Settings>('/api/settings', signal),
  });
  const problem = found.data && (found.data.problem ?? found.data.model.problem);
  return (
    <main className="page">
      <FindRuns />
      <div className="hd">
        <div className="row">
          <h1>{t('settings.title')}</h1>
          <span className="dim">{t('setup.read')}</span>
        </div>
      </div>
      {problem && (
        <Strip look="error">
          <b>{t('setup.problem')}</b> {problem}
        </Strip>
      )}
      <div className="settings">
        <Yours />
        {found.data && <Model settings={found.data} />}
        <Server />
        {found.data && <Endpoints settings={found.data} />}
        {found.data && <Live settings={found.data} />}
        {found.data && <Prices settings={found.data} />}
        {found.data && <Agents settings={found.data} />}
        {found.data && (
          <>
            <Removed title={t('settings.secrets')} say={t('setup.secretsSay')} rules={found.data.secrets} />
            <Removed title={t('setup.redaction')} say={t('setup.redactionSay')} rules={found.data.redaction} />
          </>
        )}
      </div>
      {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
      {found.isPending && <Loading what={t('settings.title')} rows={10} />}
      {found.data && <Items settings={found.data} />}
      <Foot hints={HINTS} />
    </main>
  );
}

function Model({ settings }: { readonly settings: Settings }) {
  const { t } = useWords();
  const { base_url, model, key, key_variable, places } = settings.model;
  return (
    <Part title={t('settings.model')}>
      <dl className="kv">
        <dt>{t('settings.address')}</dt>
        <dd className="mono">
          {base_url ?? <NotSet />} <Place place={places.base_url} />
        </dd>
        <dt>{t('fork.model')}</dt>
        <dd className="mono">
          {model ?? <NotSet />} <Place place={places.model} />
        </dd>
        <dt>{t('settings.key')}</dt>
        <dd>
          {t(key ? 'settings.keySet' : 'settings.keyNotSet', { variable: key_variable })} <Place place={places.key} />
        </dd>
      </dl>
      {base_url === null && (
        <>
          <p className="note">{t('setup.noModel')}</p>
          <Command>export LLM_BASE_URL=http://127.0.0.1:8080/v1</Command>
        </>
      )}
    </Part>
  );
}

function Place({ place }: { readonly place: string | null }) {
  const { t } = useWords();
  if (place === null) return null;
  return <span className="dim">{place === 'the environment' ? t('settings.origin.environment') : place}</span>;
}

/** Further models that forks may ask by name. They are changed in the file only: an address could lead a key elsewhere. */
function Endpoints({ settings }: { readonly settings: Settings }) {
  const { t } = useWords();
  return (
    <Part title={t('setup.endpoints')}>
      {settings.endpoints.length === 0 && <p className="note">{t('setup.noEndpoints')}</p>}
      <dl className="kv">
        {settings.endpoints.map(one => (
          <div key={one.name} className="pair">
            <dt className="mono">{one.name}</dt>
            <dd>
              <code>{one.base_url}</code> {one.model && <span className="mono">{one.model}</span>}{' '}
              {one.dialect && <Tag>{one.dialect}</Tag>}
              <div className="note">
                {one.key_variable &&
                  t(one.key ? 'settings.keySet' : 'settings.keyNotSet', { variable: one.key_variable })}{' '}
                <Place place={one.place} />
              </div>
            </dd>
          </div>
        ))}
      </dl>
      <p className="note">{t('setup.endpointsSay', { file: settings.files.settings })}</p>
    </Part>
  );
}

/** What serves this page, and who works for it. */
function Server() {
  const { t } = useWords();
  const about = useQuery({ queryKey: ['about'], queryFn: ({ signal }) => get<About>('/api/about', signal) });
  const workers = useQuery({ queryKey: ['workers'], queryFn: ({ signal }) => get<Workers>('/api/workers', signal) });
  if (about.isError) return <Failure error={about.error} again={() => void about.refetch()} />;
  if (!about.data) return <Part title={t('setup.server')}>{null}</Part>;
  const { version, store, counts, read_only } = about.data;
  return (
    <Part title={t('setup.server')}>
      <dl className="kv">
        <dt>{t('setup.version')}</dt>
        <dd className="mono">{version}</dd>
        <dt>{t('setup.store')}</dt>
        <dd className="mono">
          {store} {read_only && <Tag sign="lock">{t('setup.readOnly')}</Tag>}
        </dd>
        <dt>{t('nav.runs')}</dt>
        <dd>
          <Count value={counts.runs} />
        </dd>
        <dt>{t('setup.workers')}</dt>
        <dd>
          {workers.data?.items.map(worker => (
            <div key={worker.id}>
              <span className="mono">{worker.id}</span>{' '}
              <span className="dim">{worker.agents.join(', ') || t('setup.noAgents')}</span>
            </div>
          ))}
          {workers.data?.items.length === 0 && t('compare.none')}
        </dd>
      </dl>
    </Part>
  );
}

/** Rules of the project by which something is removed. */
function Removed({ title, say, rules }: { title: string; say: string; rules: Settings['secrets'] }) {
  const { t } = useWords();
  return (
    <Part title={title}>
      <p className="note">{say}</p>
      <dl className="kv">
        {(['fields', 'patterns', 'keep'] as const).map(kind => (
          <div key={kind} className="pair">
            <dt>{t(`setup.${kind}`)}</dt>
            <dd className="mono">
              {rules[kind].join(', ') || <NotSet />} <Place place={rules.places[kind]} />
            </dd>
          </div>
        ))}
      </dl>
    </Part>
  );
}

/** Agents of which something else is kept than of all others. */
function Agents({ settings }: { readonly settings: Settings }) {
  const { t } = useWords();
  const kept = [
    ...settings.profiles.map(({ profile, ...one }) => ({ ...one, name: 'profile', value: profile })),
    ...settings.samples.map(({ share, ...one }) => ({ ...one, name: 'sample', value: String(share) })),
  ];
  return (
    <Part title={t('setup.agents')}>
      <p className="note">{t('setup.agentsSay')}</p>
      {kept.length === 0 && <p>{t('settings.noLive')}</p>}
      <dl className="kv">
        {kept.map(({ agent, name, value, place }) => (
          <div key={`${name} ${agent}`} className="pair">
            <dt className="mono">
              <RunText>{agent}</RunText>
            </dt>
            <dd className="mono">
              {name} = {value} <Place place={place} />
            </dd>
          </div>
        ))}
      </dl>
    </Part>
  );
}
