import { jsonFault } from '../../base/json';
import { useWords, type WordKey } from '../../base/words';
import { Icon } from '../../widgets/Icon';
import { RunText } from '../../widgets/text';
import { FaultText } from './FaultText';
import type { PartProps } from './ForkPage';
import { Steps } from './Steps';

/** Who answers each tool of the fork. A tool that writes is never run. */
export function ToolTable({ dialog, draft, onChange }: PartProps) {
  const { t } = useWords();
  if (dialog.tools.length === 0) return null;
  return (
    <div className="sec" id="tools">
      <div className="fsec">
        {t('fork.tools')}
        <span className="grow" />
        <label className="note">
          <input type="checkbox" checked={draft.live} onChange={event => onChange({ live: event.target.checked })} />{' '}
          {t('fork.live')} <span className="dim">({t('fork.startsOff')})</span>
        </label>
      </div>
      <table className="tbl pol">
        <thead>
          <tr>
            <th scope="col">{t('fork.col.tool')}</th>
            <th scope="col">{t('fork.col.effect')}</th>
            <th scope="col" className="r">
              {t('fork.col.recorded')}
            </th>
            <th scope="col">{t('fork.col.policy')}</th>
            <th scope="col">{t('fork.col.reason')}</th>
          </tr>
        </thead>
        <tbody>
          {dialog.tools.map(tool => (
            <Row key={tool.name} tool={tool} dialog={dialog} draft={draft} onChange={onChange} />
          ))}
        </tbody>
      </table>
      <details className="later">
        <summary className="note">{t('fork.later')}</summary>
        <Steps part="later" dialog={dialog} draft={draft} onChange={onChange} />
      </details>
    </div>
  );
}

type Tool = PartProps['dialog']['tools'][number];

function Row({ tool, dialog, draft, onChange }: PartProps & { readonly tool: Tool }) {
  const { t } = useWords();
  const policy = draft.policies[tool.name] ?? tool.policy;
  const live = policy === 'live' && draft.live;
  return (
    <tr>
      <td className="mono b">
        <RunText>{tool.name}</RunText>
      </td>
      <td className={tool.effect === 'write' ? 'b' : 't2'}>
        {tool.effect ? t(`effect.${tool.effect}` as WordKey) : t('state.unknown')}
      </td>
      <td className="r">{tool.recorded}</td>
      <td>
        <select
          className={`inp s ${live ? 'lv' : ''} ${tool.locked ? 'locked' : ''}`}
          aria-label={t('fork.policyOf', { name: tool.name })}
          value={policy}
          onChange={event => onChange({ policies: { ...draft.policies, [tool.name]: event.target.value } })}
        >
          {tool.choices.map(choice => (
            <option key={choice} value={choice} disabled={choice === 'live' && !draft.live}>
              {t(`fork.policy.${choice}` as WordKey)}
              {choice === 'live' && !draft.live && ` (${t('fork.switchOff')})`}
            </option>
          ))}
          <option value="sandbox" disabled>
            {t('fork.policy.sandbox')} ({t('fork.terminalOnly')})
          </option>
        </select>
      </td>
      <td>
        <Why tool={tool} policy={policy} dialog={dialog} draft={draft} onChange={onChange} />
      </td>
    </tr>
  );
}

/** What stands beside a policy: why it may run, what a stub answers, or why it cannot be another. */
function Why({ tool, policy, dialog, draft, onChange }: PartProps & { readonly tool: Tool; readonly policy: string }) {
  const { t } = useWords();
  const { name } = tool;
  if (policy === 'stub') {
    const text = draft.stubs[name] ?? '';
    const fault = text.trim() === '' ? null : jsonFault(text);
    return (
      <>
        <input
          className="inp s mono"
          aria-label={t('fork.stubOf', { name })}
          aria-invalid={fault !== null}
          placeholder={t('fork.stubNull')}
          value={text}
          onChange={event => onChange({ stubs: { ...draft.stubs, [name]: event.target.value } })}
        />
        {fault && (
          <span className="st error">
            <FaultText fault={fault} />
          </span>
        )}
      </>
    );
  }
  if (policy === 'live' && !draft.live) return <span className="t2">{t('fork.liveIsOff')}</span>;
  if (policy === 'live') {
    const known = dialog.live_known.find(one => one.name === name)?.reason ?? '';
    return (
      <>
        <input
          className="inp s"
          aria-label={t('fork.reasonOf', { name })}
          placeholder={known || t('fork.reasonOf', { name })}
          value={draft.reasons[name] ?? ''}
          onChange={event => onChange({ reasons: { ...draft.reasons, [name]: event.target.value } })}
        />
        {tool.effect === 'read' && (
          <label className="nw">
            <input
              type="checkbox"
              checked={draft.meant.includes(name)}
              onChange={event =>
                onChange({
                  meant: event.target.checked ? [...draft.meant, name] : draft.meant.filter(one => one !== name),
                })
              }
            />{' '}
            {t('fork.readMeant')}
          </label>
        )}
      </>
    );
  }
  if (policy === 'human') return <span className="t2">{t('fork.humanSay')}</span>;
  return tool.locked ? (
    <span className="t2">
      <Icon sign="lock" /> {t(tool.effect === 'write' ? 'fork.lockedWrite' : 'fork.lockedUnstated')}
    </span>
  ) : null;
}
