import type { Settings } from '../../api/types';
import { jsonText } from '../../base/json';
import { type Speech, useWords, type WordKey } from '../../base/words';

type Name = Settings['items'][number]['name'];

/** What each setting does; a setting that the server describes and that stands not here is an error of the types. */
const SAID: Readonly<Record<Name, WordKey>> = {
  strict: 'setup.say.strict',
  write_without_store: 'setup.say.write_without_store',
  schedule: 'setup.say.schedule',
  stuck_after: 'setup.say.stuck_after',
  lookup_timeout: 'setup.say.lookup_timeout',
  env: 'setup.say.env',
  model_urls: 'setup.say.model_urls',
  control_tools: 'setup.say.control_tools',
  outbox: 'setup.say.outbox',
  pass_trace_on: 'setup.say.pass_trace_on',
  anchors: 'setup.say.anchors',
  anchor_key: 'setup.say.anchor_key',
  profile: 'setup.say.profile',
  sample: 'setup.say.sample',
  digest_key_file: 'setup.say.digest_key_file',
  'recording.when_full': 'setup.say.when_full',
  'server.max_body': 'setup.say.max_body',
  'server.max_upload': 'setup.say.max_upload',
  'server.max_depth': 'setup.say.max_depth',
  'server.max_ratio': 'setup.say.max_ratio',
  'server.hosts': 'setup.say.hosts',
};
const SECONDS = new Set(['stuck_after', 'lookup_timeout']);
const BYTES = new Set(['server.max_body', 'server.max_upload']);

/** Every other setting: what it does, what it is, where it comes from. */
export function Items({ settings }: { readonly settings: Settings }) {
  const speech = useWords();
  const { t } = speech;
  return (
    <table className="tbl d tblwrap items" aria-label={t('settings.title')}>
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
        {settings.items.map(item => {
          const said: WordKey | undefined = SAID[item.name]; // a newer server may have more
          return (
            <tr key={item.name}>
              <td>
                <span className="mono">{item.name}</span>
                {said && <div className="note">{t(said)}</div>}
              </td>
              <td className={item.origin === 'default' ? 'mono' : 'mono b'}>{shown(item.name, item.value, speech)}</td>
              <td className="mono dim">{shown(item.name, item.default, speech)}</td>
              <td className="t2">
                {item.origin === 'environment' ? (
                  <code>{item.variable}</code>
                ) : (
                  (item.place ?? t(`settings.origin.${item.origin}`))
                )}
              </td>
              <td className="mono dim">{item.variable}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

function shown(name: string, value: unknown, { t, language }: Speech): string {
  if (value === null) return t('fork.notSet');
  if (BYTES.has(name) && typeof value === 'number') {
    return `${new Intl.NumberFormat(language).format(value / 1_000_000)} MB`;
  }
  if (SECONDS.has(name) && typeof value === 'number') return `${value} s`;
  if (Array.isArray(value)) return value.length ? value.map(one => String(one)).join(', ') : t('compare.none');
  return typeof value === 'string' ? value : jsonText(value);
}
