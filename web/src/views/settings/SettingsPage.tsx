import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { get } from '../../api/client';
import type { Settings } from '../../api/types';
import { jsonText } from '../../base/json';
import { useWords } from '../../base/words';
import { Finder, Foot } from '../../widgets/slots';
import { Failure, Loading, Strip } from '../../widgets/states';

/** What is set, and where each setting comes from. Keys are never shown. */
export function SettingsPage() {
  const { t } = useWords();
  const navigate = useNavigate();
  const found = useQuery({
    queryKey: ['settings'],
    queryFn: ({ signal }) => get<Settings>('/api/settings', signal),
  });
  return (
    <main className="page">
      <Finder label={t('app.find')} value="" onFind={q => void navigate({ to: '/runs', search: { q } })} />
      <div className="hd">
        <h1>{t('settings.title')}</h1>
      </div>
      {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
      {found.isPending && <Loading what={t('settings.title')} rows={10} />}
      {found.data && <Shown settings={found.data} />}
      <Foot hints={[{ keys: ['?'], does: 'key.all' }]} />
    </main>
  );
}

function Shown({ settings }: { readonly settings: Settings }) {
  const { t } = useWords();
  const { model, prices, live, secrets } = settings;
  const problem = settings.problem ?? model.problem;
  return (
    <>
      {problem && <Strip look="error">{problem}</Strip>}
      <div className="settings">
        <section className="box">
          <h2>{t('settings.model')}</h2>
          <dl className="kv">
            <dt>{t('settings.address')}</dt>
            <dd className="mono">{model.base_url ?? t('state.unknown')}</dd>
            <dt>{t('fork.model')}</dt>
            <dd className="mono">{model.model ?? t('state.unknown')}</dd>
            <dt>{t('settings.key')}</dt>
            <dd>{t(model.key ? 'settings.keySet' : 'settings.keyNotSet', { variable: model.key_variable })}</dd>
          </dl>
        </section>
        <section className="box">
          <h2>{t('settings.live')}</h2>
          {live.length === 0 && <p className="note">{t('settings.noLive')}</p>}
          <dl className="kv">
            {live.map(tool => (
              <div key={tool.tool} className="pair">
                <dt className="mono">{tool.tool}</dt>
                <dd>{tool.reason}</dd>
              </div>
            ))}
          </dl>
        </section>
        <section className="box">
          <h2>{t('settings.prices')}</h2>
          <dl className="kv">
            <dt>{t('settings.own')}</dt>
            <dd className="mono">{prices.own_file ?? t('compare.none')}</dd>
            <dt>{t('settings.library')}</dt>
            <dd className="mono">{prices.library}</dd>
          </dl>
          <h2>{t('settings.secrets')}</h2>
          <p className="mono">{[...secrets.fields, ...secrets.patterns].join(', ') || t('compare.none')}</p>
        </section>
      </div>
      <table className="tbl d tblwrap">
        <thead>
          <tr>
            <th scope="col">{t('settings.name')}</th>
            <th scope="col">{t('settings.value')}</th>
            <th scope="col">{t('settings.origin')}</th>
          </tr>
        </thead>
        <tbody>
          {settings.items.map(item => (
            <tr key={item.name}>
              <td className="mono" title={item.variable}>
                {item.name}
              </td>
              <td className="mono">{typeof item.value === 'string' ? item.value : jsonText(item.value)}</td>
              <td className="t2">
                {t(`settings.origin.${item.origin}`)}
                {item.origin === 'environment' && ` ${item.variable}`}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
