import { useWords, type WordKey } from '../../base/words';
import { Icon } from '../../widgets/Icon';
import { RunText } from '../../widgets/text';
import type { PartProps } from './ForkPage';

/** Who answers each tool of the fork. A tool that writes is never run. */
export function ToolTable({ dialog, draft, onChange }: PartProps) {
  const { t } = useWords();
  if (dialog.tools.length === 0) return null;
  return (
    <div className="sec">
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
    </div>
  );
}

type Tool = PartProps['dialog']['tools'][number];

function Row({ tool, dialog, draft, onChange }: PartProps & { readonly tool: Tool }) {
  const { t } = useWords();
  const known = dialog.live_known.find(one => one.name === tool.name)?.reason ?? '';
  const policy = draft.policies[tool.name] ?? tool.policy;
  const live = policy === 'live';
  const choices = tool.choices.filter(choice => choice !== 'live' || draft.live || live);
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
          className={`inp s ${live && draft.live ? 'lv' : ''}`}
          aria-label={t('fork.policyOf', { name: tool.name })}
          value={policy}
          onChange={event => onChange({ policies: { ...draft.policies, [tool.name]: event.target.value } })}
        >
          {choices.map(choice => (
            <option key={choice} value={choice}>
              {t(`fork.policy.${choice}` as WordKey)}
            </option>
          ))}
        </select>
      </td>
      <td>
        {tool.locked && (
          <span className="t2">
            <Icon sign="lock" /> {tool.reason}
          </span>
        )}
        {live && (
          <input
            className="inp s"
            aria-label={t('fork.reasonOf', { name: tool.name })}
            placeholder={known || t('fork.reasonOf', { name: tool.name })}
            value={draft.reasons[tool.name] ?? ''}
            onChange={event => onChange({ reasons: { ...draft.reasons, [tool.name]: event.target.value } })}
          />
        )}
      </td>
    </tr>
  );
}
