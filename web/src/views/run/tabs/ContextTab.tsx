import { useQuery } from '@tanstack/react-query';
import { get, path } from '../../../api/client';
import type { Context, ContextPart, RunDetail } from '../../../api/types';
import { useWords, type WordKey } from '../../../base/words';
import { colourOf, type Slice, slices } from '../../../model/context';
import { Failure, Loading } from '../../../widgets/states';
import { Count } from '../../../widgets/text';
import type { PanelProps } from '../Inspector';

function useContextOf(run: RunDetail, step: number) {
  return useQuery({
    queryKey: ['run', run.id, 'step', step, 'context'],
    queryFn: ({ signal }) => get<Context>(path`/api/runs/${run.id}/steps/${step}/context`, signal),
  });
}

/** What fills the window of this step, and how that grew over the run. */
export function ContextTab({ run, detail, onStep }: PanelProps) {
  const { t } = useWords();
  const found = useContextOf(run, detail.idx);
  if (detail.kind !== 'llm') return <p className="panel note">{t('ctx.none')}</p>;
  if (found.isError) return <Failure error={found.error} again={() => void found.refetch()} />;
  if (!found.data) return <Loading what={t('tab.context')} rows={6} />;
  const { growth, growth_of } = found.data;
  const most = Math.max(1, ...growth.map(one => one.total));
  return (
    <section className="panel">
      <Shares context={found.data} />
      <div className="sec">
        <h3>
          {t('ctx.growth')}
          <span>{t('run.moreRuns', { n: growth.filter(one => one.parts !== null).length, total: growth_of })}</span>
        </h3>
        {growth
          .filter(one => one.parts !== null)
          .map(one => (
            <button
              key={one.idx}
              type="button"
              className={`growth ${one.idx === detail.idx ? 'sel' : ''}`}
              onClick={() => onStep(one.idx)}
            >
              <span className="mono dim">{one.idx}</span>
              <span>
                <span className="shares thin" style={{ width: `${(100 * one.total) / most}%` }}>
                  <Slices parts={one.parts ?? []} />
                </span>
              </span>
              <span className="r">
                <Count value={one.total} />
              </span>
            </button>
          ))}
      </div>
    </section>
  );
}

/** The make-up of one step's context, for the overview. */
export function Makeup({ run, step }: { readonly run: RunDetail; readonly step: number }) {
  const found = useContextOf(run, step);
  return found.data?.parts.length ? (
    <div className="sec">
      <Shares context={found.data} />
    </div>
  ) : null;
}

const ROLES: Readonly<Record<string, WordKey>> = {
  system: 'ctx.role.system',
  user: 'ctx.role.user',
  assistant: 'ctx.role.assistant',
  tool: 'ctx.role.tool',
  'tool schemas': 'ctx.role.tools',
};

function Shares({ context }: { readonly context: Context }) {
  const { t } = useWords();
  const name = (slice: Slice) => {
    const role = ROLES[slice.role];
    const what = role ? t(role) : slice.role;
    return slice.new ? t('ctx.new', { what }) : what;
  };
  return (
    <>
      <h3>
        {t('ctx.title')}
        <span>{t(context.reported ? 'ctx.estimated' : 'ctx.estimatedText', { n: context.total })}</span>
      </h3>
      <div className="shares" role="img" aria-label={t('ctx.title')}>
        <Slices parts={context.parts} />
      </div>
      <table className="ctx">
        <tbody>
          {slices(context.parts).map(slice => (
            <tr key={`${slice.role} ${slice.new}`}>
              <td>
                <span className="sw" style={{ background: colourOf(slice) }} />
              </td>
              <td>{name(slice)}</td>
              <td className="r">
                <Count value={slice.tokens} />
              </td>
              <td className="r dim">{Math.round(slice.share * 100)} %</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

function Slices({ parts }: { readonly parts: readonly ContextPart[] }) {
  return slices(parts).map(slice => (
    <i key={`${slice.role} ${slice.new}`} style={{ width: `${slice.share * 100}%`, background: colourOf(slice) }} />
  ));
}
