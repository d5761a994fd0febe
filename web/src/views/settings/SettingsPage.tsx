import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { get } from '../../api/client';
import type { About, Settings, Workers } from '../../api/types';
import { jsonText } from '../../base/json';
import type { Hint } from '../../base/keys';
import { useWords } from '../../base/words';
import { Finder, Foot } from '../../widgets/slots';
import { Failure, Loading, Strip } from '../../widgets/states';
import { Tag } from '../../widgets/tags';
import { Command, Count, RunText } from '../../widgets/text';
import { Yours } from './Yours';

const HINTS: readonly Hint[] = [{ keys: ['?'], does: 'key.all' }];

/** What is set, and where each setting comes from. Keys are never shown, only the names of the variables that hold them. */
export function SettingsPage() {
  const { t } = useWords();
  const navigate = useNavigate();
  const found = useQuery({
    queryKey: ['settings'],
    queryFn: ({ signal }) => get<Settings>('/api/settings', signal),
  });
  const problem = found.data && (found.data.problem ?? found.data.model.problem);
  return (
    <main className="page">
      <Finder label={t('app.find')} value="" onFind={q => void navigate({ to: '/runs', search: { q } })} />
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
        {found.data && <Live settings={found.data} />}
        {found.data && <Prices settings={found.data} />}
        {found.data && <Secrets settings={found.data} />}
      </div>
      {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
      {found.isPending && <Loading what={t('settings.title')} rows={10} />}
      {found.data && <Items settings={found.data} />}
      <Foot hints={HINTS} />
    </main>
  );
}

function Part({ title, children }: { readonly title: string; readonly children: ReactNode }) {
  return (
    <section className="box">
      <h2>{title}</h2>
      {children}
    </section>
  );
}

function NotSet() {
  const { t } = useWords();
  return <span className="dim">{t('fork.notSet')}</span>;
}

function Model({ settings }: { readonly settings: Settings }) {
  const { t } = useWords();
  const { base_url, model, key, key_variable } = settings.model;
  return (
    <Part title={t('settings.model')}>
      <dl className="kv">
        <dt>{t('settings.address')}</dt>
        <dd className="mono">{base_url ?? <NotSet />}</dd>
        <dt>{t('fork.model')}</dt>
        <dd className="mono">{model ?? <NotSet />}</dd>
        <dt>{t('settings.key')}</dt>
        <dd>{t(key ? 'settings.keySet' : 'settings.keyNotSet', { variable: key_variable })}</dd>
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

function Live({ settings }: { readonly settings: Settings }) {
  const { t } = useWords();
  return (
    <Part title={t('settings.live')}>
      <p className="note">{t('setup.liveSay')}</p>
      {settings.live.length === 0 && <p>{t('settings.noLive')}</p>}
      <dl className="kv">
        {settings.live.map(({ tool, reason }) => (
          <div key={tool} className="pair">
            <dt className="mono">
              <RunText>{tool}</RunText>
            </dt>
            <dd>
              <RunText>{reason}</RunText>
            </dd>
          </div>
        ))}
      </dl>
    </Part>
  );
}

function Prices({ settings }: { readonly settings: Settings }) {
  const { t } = useWords();
  const { own_file, variable, library } = settings.prices;
  return (
    <Part title={t('settings.prices')}>
      <dl className="kv">
        <dt>{t('settings.own')}</dt>
        <dd className="mono">{own_file ?? <NotSet />}</dd>
        <dt>{t('settings.library')}</dt>
        <dd className="mono">{library}</dd>
      </dl>
      <p className="note">{t('setup.pricesSay', { variable })}</p>
    </Part>
  );
}

function Secrets({ settings }: { readonly settings: Settings }) {
  const { t } = useWords();
  const rules = [
    ['setup.fields', settings.secrets.fields],
    ['setup.patterns', settings.secrets.patterns],
    ['setup.keep', settings.secrets.keep],
  ] as const;
  return (
    <Part title={t('settings.secrets')}>
      <p className="note">{t('setup.secretsSay')}</p>
      <dl className="kv">
        {rules.map(([word, names]) => (
          <div key={word} className="pair">
            <dt>{t(word)}</dt>
            <dd className="mono">{names.join(', ') || <NotSet />}</dd>
          </div>
        ))}
      </dl>
    </Part>
  );
}

function Items({ settings }: { readonly settings: Settings }) {
  const { t } = useWords();
  return (
    <table className="tbl d tblwrap" aria-label={t('settings.title')}>
      <thead>
        <tr>
          <th scope="col">{t('settings.name')}</th>
          <th scope="col">{t('settings.value')}</th>
          <th scope="col">{t('setup.default')}</th>
          <th scope="col">{t('settings.origin')}</th>
          <th scope="col">{t('setup.change')}</th>
        </tr>
      </thead>
      <tbody>
        {settings.items.map(item => (
          <tr key={item.name}>
            <td className="mono">{item.name}</td>
            <td className={item.origin === 'default' ? 'mono' : 'mono b'}>{shown(item.value)}</td>
            <td className="mono dim">{shown(item.default)}</td>
            <td className="t2">{t(`settings.origin.${item.origin}`)}</td>
            <td className="mono dim">{item.variable}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function shown(value: unknown): string {
  return typeof value === 'string' ? value : jsonText(value);
}
