import { useState } from 'react';
import type { Settings } from '../../api/types';
import { useWords } from '../../base/words';
import { RunText } from '../../widgets/text';
import { useChange } from './change';
import { NotSet, Part } from './Part';
import { Save } from './Save';

const AMOUNTS = ['input', 'output', 'cached_input', 'cache_write'] as const;
type Amount = (typeof AMOUNTS)[number];
type Row = { readonly model: string } & Readonly<Record<Amount, string>>;
const NEW: Row = { model: '', input: '', output: '', cached_input: '', cache_write: '' };

/** The project's own prices: exact decimals, which go over those of the library. */
export function Prices({ settings }: { readonly settings: Settings }) {
  const { t } = useWords();
  const { own_file, variable, library, currency, per, models } = settings.prices;
  const change = useChange(settings);
  const known: readonly Row[] = models.map(one => ({
    ...one,
    cached_input: one.cached_input ?? '',
    cache_write: one.cache_write ?? '',
  }));
  const [rows, setRows] = useState<readonly Row[] | null>(null);
  const shown = rows ?? known;
  const fault = rows === null ? null : faultOf(rows);
  const edit = (at: number, part: Partial<Row>) =>
    setRows(shown.map((row, n) => (n === at ? { ...row, ...part } : row)));
  const body = () => ({
    currency,
    per: per as '1M tokens',
    models: shown.map(({ cached_input, cache_write, ...row }) => ({
      ...row,
      cached_input: cached_input.trim() || null,
      cache_write: cache_write.trim() || null,
    })),
  });
  return (
    <Part title={t('settings.prices')} wide={shown.length > 0}>
      <dl className="kv">
        <dt>{t('settings.own')}</dt>
        <dd className="mono">{own_file ?? <NotSet />}</dd>
        <dt>{t('settings.library')}</dt>
        <dd className="mono">{library}</dd>
      </dl>
      {shown.length > 0 && (
        <table className="tbl d prices">
          <thead>
            <tr>
              <th scope="col">{t('fork.model')}</th>
              {AMOUNTS.map(name => (
                <th key={name} scope="col" className="r">
                  {t(`setup.price.${name}`)}
                </th>
              ))}
              <th scope="col" className="dim">
                {t('setup.priceUnit', { currency, per })}
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.map((row, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: a row keeps its place while its name is typed
              <tr key={at}>
                {(['model', ...AMOUNTS] as const).map(name => (
                  <td key={name} className={name === 'model' ? 'mono' : 'mono r'}>
                    {rows === null ? (
                      <RunText>{row[name] || '–'}</RunText>
                    ) : (
                      <input
                        className="inp s mono"
                        aria-label={`${row.model || t('fork.model')} ${name === 'model' ? '' : t(`setup.price.${name}`)}`.trim()}
                        inputMode={name === 'model' ? 'text' : 'decimal'}
                        value={row[name]}
                        onChange={event => edit(at, { [name]: event.target.value })}
                      />
                    )}
                  </td>
                ))}
                <td>
                  {rows !== null && (
                    <button type="button" className="btn s q" onClick={() => setRows(rows.filter((_, n) => n !== at))}>
                      {t('setup.remove')}
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <p className="note">{t('setup.pricesSay', { variable })}</p>
      {rows !== null && (
        <button type="button" className="btn s q" onClick={() => setRows([...rows, NEW])}>
          {t('setup.addModel')}
        </button>
      )}
      <Save
        settings={settings}
        file={settings.files.prices}
        editing={rows !== null}
        fault={fault && t(fault)}
        change={change}
        onEdit={() => setRows(known.length ? known : [NEW])}
        onCancel={() => setRows(null)}
        onSave={() => change.mutate({ prices: body() }, { onSuccess: () => setRows(null) })}
      />
    </Part>
  );
}

function faultOf(rows: readonly Row[]) {
  if (rows.some(row => row.model.trim() === '')) return 'setup.bad.model' as const;
  const exact = (text: string, must: boolean) => (text.trim() === '' ? !must : /^\d+(\.\d+)?$/.test(text.trim()));
  const good = rows.every(row => AMOUNTS.every(name => exact(row[name], name === 'input' || name === 'output')));
  if (!good) return 'setup.bad.price' as const;
  return new Set(rows.map(row => row.model.trim())).size < rows.length ? ('setup.bad.twice' as const) : null;
}
