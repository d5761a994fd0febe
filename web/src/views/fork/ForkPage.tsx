import './fork.css';
import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { address, get, path } from '../../api/client';
import type { ForkDialog, RunDetail } from '../../api/types';
import { type Hint, useKeys } from '../../base/keys';
import { useOtherTabs } from '../../base/tabs';
import { useWords } from '../../base/words';
import { whyIn } from '../../base/words/said';
import { type Draft, EMPTY } from '../../model/draft';
import { CutLine } from '../../widgets/controls';
import { FindRuns, Foot } from '../../widgets/slots';
import { Failure, Loading, Strip } from '../../widgets/states';
import { RunText } from '../../widgets/text';
import { Aside } from './Aside';
import { Choices } from './Choices';
import { Parameters } from './Parameters';
import { FromStart, RequestEditor } from './RequestEditor';
import { Road } from './Road';
import { Steps } from './Steps';
import { ToolTable } from './ToolTable';

const route = getRouteApi('/runs/$id/fork');
const HINTS: readonly Hint[] = [
  { keys: ['Ctrl', 'Enter'], does: 'key.start' },
  { keys: ['Escape'], does: 'key.back' },
  { keys: ['Alt', 'ArrowDown'], does: 'key.nextChange' },
  { keys: ['Alt', 'ArrowUp'], does: 'key.previousChange' },
  { keys: ['t'], does: 'key.tools' },
  { keys: ['?'], does: 'key.all' },
];

/** A fork before it is begun: what is kept, what is changed, who answers tools, what it may cost. */
export function ForkPage() {
  const { t } = useWords();
  const { id } = route.useParams();
  const { from = 0 } = route.useSearch();
  const run = useQuery({
    queryKey: ['run', id],
    queryFn: ({ signal }) => get<RunDetail>(path`/api/runs/${id}`, signal),
  });
  const dialog = useQuery({
    queryKey: ['run', id, 'fork', from],
    queryFn: ({ signal }) => get<ForkDialog>(address(path`/api/runs/${id}/fork`, { from }), signal),
  });
  const title = from === 'start' ? t('fork.titleStart') : t('fork.title', { step: from });
  const failed = run.error ?? dialog.error;
  if (run.data && dialog.data) return <Panel key={`${id} ${from}`} run={run.data} dialog={dialog.data} />;
  return (
    <main className="page">
      <h1 className="vh">{title}</h1>
      {failed ? (
        <Failure error={failed} again={() => void dialog.refetch()}>
          {run.data && (
            <Link to="/runs/$id" params={{ id }} search={{}} className="btn">
              {t('fork.backToRun')}
            </Link>
          )}
        </Failure>
      ) : (
        <Loading what={title} rows={8} />
      )}
    </main>
  );
}

/** The draft of a run and a step, kept in this tab: two tabs do not share one, and each says that there is another. */
function useDraft(name: string, dialog: ForkDialog) {
  const [draft, setDraft] = useState<Draft>(() => ({ ...EMPTY, ...firstChoice(dialog), ...keptDraft(name) }));
  useEffect(() => {
    try {
      sessionStorage.setItem(name, JSON.stringify(draft));
    } catch {
      // A browser that keeps nothing loses the draft with the page.
    }
  }, [name, draft]);
  return [draft, (change: Partial<Draft>) => setDraft(before => ({ ...before, ...change }))] as const;
}

function keptDraft(name: string): Partial<Draft> {
  try {
    return JSON.parse(sessionStorage.getItem(name) ?? '{}') as Partial<Draft>;
  } catch {
    return {};
  }
}

function firstChoice(dialog: ForkDialog): Partial<Draft> {
  const engine = dialog.engines.find(one => one.available)?.engine ?? (dialog.at_start ? 'own' : 'generic');
  return { engine, endpoint: dialog.endpoints[0]?.name ?? '' };
}

interface PanelProps {
  readonly run: RunDetail;
  readonly dialog: ForkDialog;
}

function Panel({ run, dialog }: PanelProps) {
  const { t, language } = useWords();
  // A run that asked no model has nothing in a request to change; its tools can be answered otherwise.
  const asksModel = !dialog.at_start || dialog.model !== null;
  const What = dialog.at_start ? FromStart : RequestEditor;
  const navigate = route.useNavigate();
  const step = dialog.from_step;
  const name = `loupe-fork-${run.id}-${dialog.at_start ? 'start' : step}`;
  const title = dialog.at_start ? t('fork.titleStart') : t('fork.title', { step: String(step) });
  const [draft, change] = useDraft(name, dialog);
  const back = () => void navigate({ to: '/runs/$id', params: { id: run.id }, search: { step } });
  const tabs = useOtherTabs(name);
  useKeys({
    Escape: back,
    t: () => document.querySelector<HTMLElement>('#tools select')?.focus(),
  });
  return (
    <>
      <FindRuns />
      <section className="hd" aria-label={title}>
        <div className="row">
          <span className="crumb ell">
            <Link to="/runs" search={{}}>
              {t('run.crumb')}
            </Link>
            {' / '}
            <Link to="/runs/$id" params={{ id: run.id }} search={{ step }}>
              <RunText>{run.name}</RunText>
            </Link>
            {' /'}
          </span>
          <h1>{title}</h1>
          <span className="grow" />
          <span className="note">{t('fork.never')}</span>
        </div>
      </section>
      {tabs.others > 0 && (
        <Strip>
          <b>{t('fork.otherTab')}</b> {t('fork.otherTabSay')}
        </Strip>
      )}
      {tabs.news !== null && (
        <Strip
          look="plain"
          actions={
            <Link to="/jobs/$id" params={{ id: tabs.news }}>
              {t('fork.openJob')}
            </Link>
          }
        >
          {t('fork.otherStarted')}
        </Strip>
      )}
      <main className="forkgrid">
        <Road run={run} dialog={dialog} />
        <div className="pane forkmain">
          {!dialog.at_start && (
            <>
              <Steps part="kept" dialog={dialog} draft={draft} onChange={change} />
              <CutLine step={step}>{t('fork.keptRow', { n: dialog.kept.steps })}</CutLine>
            </>
          )}
          <div className="lane post">
            <div className="g" />
            <div className="fp">
              <div className="sec">
                <What dialog={dialog} draft={draft} onChange={change}>
                  <Engine dialog={dialog} draft={draft} onChange={change} />
                </What>
                {dialog.engines
                  .filter(one => !one.available)
                  .map(one => (
                    <p key={one.engine} id={`why-not-${one.engine}`} className="note off">
                      {t(`fork.engine.${one.engine}`)}: {whyIn(language, one.why_not_code, one.why_not)}{' '}
                      {one.command && <code>{one.command}</code>}
                    </p>
                  ))}
              </div>
              {asksModel && <Parameters dialog={dialog} draft={draft} onChange={change} />}
              <ToolTable dialog={dialog} draft={draft} onChange={change} />
              <Choices draft={draft} onChange={change} />
            </div>
          </div>
          {run.steps > step && <p className="note in">{t('fork.notCarried', { first: step, last: run.steps - 1 })}</p>}
        </div>
        <Aside run={run} dialog={dialog} draft={draft} onBack={back} onStart={tabs.tell} />
      </main>
      <Foot hints={HINTS}>{t('fork.draft')}</Foot>
    </>
  );
}

export interface PartProps {
  readonly dialog: ForkDialog;
  readonly draft: Draft;
  readonly onChange: (change: Partial<Draft>) => void;
}

/** Who drives the fork; one that cannot says why, and which command would help. */
function Engine({ dialog, draft, onChange }: PartProps) {
  const { t } = useWords();
  return (
    <span className="row engines">
      <span className="note">{t('fork.engine')}</span>
      <span className="seg" role="group" aria-label={t('fork.engine')}>
        {dialog.engines.map(one => (
          <button
            key={one.engine}
            type="button"
            aria-pressed={one.engine === draft.engine}
            disabled={!one.available}
            aria-describedby={one.available ? undefined : `why-not-${one.engine}`}
            onClick={() => onChange({ engine: one.engine })}
          >
            {t(`fork.engine.${one.engine}`)}
          </button>
        ))}
      </span>
    </span>
  );
}
