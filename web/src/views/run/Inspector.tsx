import { useQuery } from '@tanstack/react-query';
import { lazy, Suspense } from 'react';
import { get, path } from '../../api/client';
import type { RunDetail, StepDetail } from '../../api/types';
import { duration } from '../../base/format';
import { useWords } from '../../base/words';
import { TABS, type Tab } from '../../model/addresses';
import { Tabs } from '../../widgets/controls';
import { Catcher, Failure, Loading } from '../../widgets/states';
import { Kind } from '../../widgets/tags';
import { RunText } from '../../widgets/text';
import { ContextTab } from './tabs/ContextTab';
import { DiffTab } from './tabs/DiffTab';
import { EventsTab } from './tabs/EventsTab';
import { MessagesTab } from './tabs/MessagesTab';
import { Overview } from './tabs/Overview';

const RawTab = lazy(() => import('./tabs/RawTab'));

interface InspectorProps {
  readonly run: RunDetail;
  readonly step: number;
  readonly tab: Tab;
  readonly onTab: (tab: Tab) => void;
  readonly onStep: (step: number) => void;
}

/** One step opened: everything that is known of it. */
export function Inspector({ run, step, tab, onTab, onStep }: InspectorProps) {
  const { t, language } = useWords();
  const found = useQuery({
    queryKey: ['run', run.id, 'step', step],
    queryFn: ({ signal }) => get<StepDetail>(path`/api/runs/${run.id}/steps/${step}`, signal),
    enabled: run.steps > step,
  });
  const detail = found.data;
  const about = [detail?.model ?? detail?.name, duration(detail?.seconds, language)].filter(Boolean).join(' · ');
  return (
    <aside className="ins pane" aria-label={t('step.title', { step })} id="inspector" tabIndex={-1}>
      <div className="ih">
        <div className="row">
          {detail && <Kind kind={detail.kind} />}
          <h2 className="nw">{t('step.title', { step: String(step) })}</h2>
          <span className="dim ell small">
            <RunText>{about}</RunText>
          </span>
        </div>
      </div>
      <Tabs
        label={t('step.title', { step: String(step) })}
        value={tab}
        tabs={TABS.map(value => ({ value, label: t(`tab.${value}`) }))}
        panel="step-panel"
        onChoose={onTab}
      />
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a panel that scrolls must be reachable with keys */}
      <div className="panels" id="step-panel" role="tabpanel" aria-labelledby={`step-panel-${tab}`} tabIndex={0}>
        {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
        {found.isPending && run.steps > step && <Loading what={t('step.title', { step })} rows={6} />}
        {run.steps > 0 && run.steps <= step && (
          <p className="state">{t('step.missing', { step: String(step), last: String(run.steps - 1) })}</p>
        )}
        {detail && (
          <Catcher key={`${step} ${tab}`}>
            <Panel run={run} detail={detail} tab={tab} onTab={onTab} onStep={onStep} />
          </Catcher>
        )}
      </div>
    </aside>
  );
}

export interface PanelProps {
  readonly run: RunDetail;
  readonly detail: StepDetail;
  readonly onTab: (tab: Tab) => void;
  readonly onStep: (step: number) => void;
}

function Panel({ tab, ...props }: PanelProps & { readonly tab: Tab }) {
  switch (tab) {
    case 'overview':
      return <Overview {...props} />;
    case 'messages':
      return <MessagesTab {...props} />;
    case 'context':
      return <ContextTab {...props} />;
    case 'diff':
      return <DiffTab {...props} />;
    case 'raw':
      return (
        <Suspense fallback={<Loading rows={8} />}>
          <RawTab {...props} />
        </Suspense>
      );
    case 'events':
      return <EventsTab {...props} />;
  }
}
