import { useState } from 'react';
import type { Settings } from '../../api/types';
import { useWords } from '../../base/words';
import { RunText } from '../../widgets/text';
import { useChange } from './change';
import { Part } from './Part';
import { Save } from './Save';

interface Row {
  readonly tool: string;
  readonly reason: string;
}

/** Tools that a fork may run for real, each with its written reason. */
export function Live({ settings }: { readonly settings: Settings }) {
  const { t } = useWords();
  const change = useChange(settings);
  const known = settings.live.map(({ tool, reason }) => ({ tool, reason }));
  const [rows, setRows] = useState<readonly Row[] | null>(null);
  const fault = rows === null ? null : faultOf(rows);
  const edit = (at: number, part: Partial<Row>) =>
    setRows((rows ?? known).map((row, n) => (n === at ? { ...row, ...part } : row)));
  return (
    <Part title={t('settings.live')}>
      <p className="note">{t('setup.liveSay')}</p>
      {rows === null ? (
        <>
          {settings.live.length === 0 && <p>{t('settings.noLive')}</p>}
          <dl className="kv">
            {settings.live.map(({ tool, reason, place }) => (
              <div key={tool} className="pair">
                <dt className="mono">
                  <RunText>{tool}</RunText>
                </dt>
                <dd>
                  <RunText>{reason}</RunText> {place && <span className="mono dim">{place}</span>}
                </dd>
              </div>
            ))}
          </dl>
        </>
      ) : (
        rows.map((row, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a row keeps its place while its name is typed
          <div key={at} className="row editrow">
            <input
              className="inp s mono"
              aria-label={t('setup.toolName')}
              placeholder={t('setup.toolName')}
              value={row.tool}
              onChange={event => edit(at, { tool: event.target.value })}
            />
            <input
              className="inp s grow"
              aria-label={t('setup.toolReason')}
              placeholder={t('setup.toolReason')}
              value={row.reason}
              onChange={event => edit(at, { reason: event.target.value })}
            />
            <button type="button" className="btn s q" onClick={() => setRows(rows.filter((_, n) => n !== at))}>
              {t('setup.remove')}
            </button>
          </div>
        ))
      )}
      {rows !== null && (
        <button type="button" className="btn s q" onClick={() => setRows([...rows, { tool: '', reason: '' }])}>
          {t('setup.addTool')}
        </button>
      )}
      <Save
        settings={settings}
        file={settings.files.settings}
        editing={rows !== null}
        fault={fault && t(fault)}
        change={change}
        onEdit={() => setRows(known.length ? known : [{ tool: '', reason: '' }])}
        onCancel={() => setRows(null)}
        onSave={() => change.mutate({ live: [...(rows ?? [])] }, { onSuccess: () => setRows(null) })}
      />
    </Part>
  );
}

function faultOf(rows: readonly Row[]) {
  if (rows.some(row => row.tool.trim() === '' || row.reason.trim() === '')) return 'setup.bad.reason' as const;
  return new Set(rows.map(row => row.tool.trim())).size < rows.length ? ('setup.bad.twice' as const) : null;
}
