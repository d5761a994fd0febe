import type { ForkDialog, RunDetail } from '../../api/types';
import { duration } from '../../base/format';
import { useWords } from '../../base/words';
import { timeLine } from '../../model/waterfall';
import { Axis, Bar, ROW, StepRow } from '../../widgets/Waterfall';
import { useRoad } from './queries';

/** Steps of the observed road that are drawn, half of them before the cut. */
const MOST = 200;

/** The road of the observed run: what is kept above the cut, and dotted below it what is not carried over. */
export function Road({ run, dialog }: { readonly run: RunDetail; readonly dialog: ForkDialog }) {
  const { t, language } = useWords();
  const road = useRoad(run.id, dialog.from_step, MOST);
  const steps = road.data?.items ?? [];
  const line = timeLine(run, steps[0]?.started_at, Date.now());
  const total = road.data?.total ?? 0;
  return (
    <section className="pane wf road" aria-label={t('fork.road')}>
      <h2 className="h3">
        <span>{t('run.steps')}</span>
        <span className="hide-n">{duration(run.seconds, language)}</span>
      </h2>
      <Axis line={line} />
      <div className="wfrows" style={{ height: steps.length * ROW }}>
        {steps.map((header, at) => {
          const kept = header.idx < dialog.from_step;
          const here = header.idx === dialog.from_step;
          return (
            <StepRow
              key={header.idx}
              index={header.idx}
              top={at * ROW}
              header={header}
              gutter={kept ? 'pre' : 'ghost'}
              cut={here}
              open={here}
            >
              <Bar header={header} kept={kept} fork={false} line={line} />
            </StepRow>
          );
        })}
      </div>
      {steps.length < total && <p className="note in">{t('fork.roadOf', { n: steps.length, total })}</p>}
      <p className="note in">{t('fork.dotted', { step: dialog.from_step })}</p>
    </section>
  );
}
