import { useMutation, useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type ReactNode, useDeferredValue, useEffect, useState } from 'react';
import { path, send } from '../../api/client';
import type { Estimated, ForkDialog, Forked, RunDetail } from '../../api/types';
import { dollars } from '../../base/format';
import { jsonText } from '../../base/json';
import { useKeys } from '../../base/keys';
import { useWords } from '../../base/words';
import { bodyOf, changes, type Draft, sound } from '../../model/draft';
import { Icon, type Sign } from '../../widgets/Icon';
import { Failure } from '../../widgets/states';
import { Kbd } from '../../widgets/text';
import { Watch } from './Watch';

interface AsideProps {
  readonly run: RunDetail;
  readonly dialog: ForkDialog;
  readonly draft: Draft;
  readonly onBack: () => void;
}

/** What to know before, what it may cost, and the button; then how it goes. */
export function Aside({ run, dialog, draft, onBack }: AsideProps) {
  const { t } = useWords();
  const navigate = useNavigate();
  const start = useMutation({
    mutationFn: () => send<Forked>('POST', path`/api/runs/${run.id}/fork`, bodyOf(draft, dialog)),
  });
  const engine = dialog.engines.find(one => one.engine === draft.engine);
  const canAsk = dialog.endpoints.length > 0 || draft.engine === 'own';
  const ready = sound(draft) && engine?.available === true && canAsk && !start.isPending && !start.isSuccess;
  const go = () => {
    if (ready) start.mutate();
  };
  useKeys({ 'Ctrl+Enter': go });
  const begun = start.data;
  const done = () => {
    if (!begun) return;
    const runs = [...begun.runs, ...begun.controls].map(one => one.id);
    const [only] = runs;
    if (runs.length === 1 && only) void navigate({ to: '/compare', search: { a: run.id, b: only } });
    else void navigate({ to: '/summary', search: { run: [run.id, ...runs] } });
  };
  return (
    <aside className="aside" aria-label={t('fork.before')}>
      <div className="body">
        {begun ? (
          <Watch begun={begun} onDone={done} />
        ) : (
          <>
            <Know dialog={dialog} />
            <Changed dialog={dialog} draft={draft} />
            <Estimate run={run} dialog={dialog} draft={draft} />
            {!canAsk && <p className="st error">{t('fork.noEndpoint')}</p>}
            {engine && !engine.available && (
              <p className="st error">
                {engine.why_not} {engine.command && <code>{engine.command}</code>}
              </p>
            )}
            {start.isError && <Failure error={start.error} />}
          </>
        )}
      </div>
      <div className="act">
        <button type="button" className="btn p" disabled={!ready} onClick={go}>
          <Icon sign={start.isPending ? 'run' : 'fork'} />
          {start.isPending ? t('fork.starting') : <RunWords draft={draft} />} <Kbd keys={['Ctrl', 'Enter']} />
        </button>
        <button type="button" className="btn" onClick={onBack}>
          {t('fork.cancel')} <Kbd keys={['Escape']} />
        </button>
      </div>
    </aside>
  );
}

function RunWords({ draft }: { readonly draft: Draft }) {
  const { t } = useWords();
  const n = draft.repeat;
  return draft.control ? t('fork.runBoth', { n, controls: n }) : t('fork.run', { n });
}

function Know({ dialog }: { readonly dialog: ForkDialog }) {
  const { t } = useWords();
  const writers = dialog.tools.filter(tool => tool.effect === 'write').map(tool => tool.name);
  return (
    <>
      <h2>{t('fork.before')}</h2>
      <ul className="know">
        <Line sign="kept">{t('fork.know.kept', { n: dialog.kept.steps, answers: dialog.kept.answers })}</Line>
        <Line sign="live">{t('fork.know.model', { step: String(dialog.from_step) })}</Line>
        <Line sign="cassette">{t('fork.know.tools')}</Line>
        {writers.length > 0 && <Line sign="lock">{t('fork.know.write', { name: writers.join(', ') })}</Line>}
        <Line sign="miss">{t('fork.know.miss')}</Line>
        <Line sign="info">{t('fork.know.control')}</Line>
        {dialog.server_held && <Line sign="warn">{t('fork.know.held')}</Line>}
        {dialog.cautions.map(caution => (
          <Line key={caution} sign="warn">
            {caution}
          </Line>
        ))}
      </ul>
    </>
  );
}

function Line({ sign, children }: { readonly sign: Sign; readonly children: ReactNode }) {
  return (
    <li>
      <Icon sign={sign} />
      <span>{children}</span>
    </li>
  );
}

function Changed({ dialog, draft }: { readonly dialog: ForkDialog; readonly draft: Draft }) {
  const { t } = useWords();
  const names = changes(draft, dialog);
  return (
    <div className="sec">
      <h3>
        {t('fork.overrides')}
        <span>{names.length}</span>
      </h3>
      <p className="box in">{names.length ? names.join(', ') : t('fork.nothing')}</p>
    </div>
  );
}

const PAUSE = 500;

/** What the fork is likely to ask and cost; asked anew when the draft has rested for a moment. */
function Estimate({ run, dialog, draft }: Omit<AsideProps, 'onBack'>) {
  const { t } = useWords();
  const body = useDeferredValue(jsonText(bodyOf(draft, dialog)));
  const [asked, setAsked] = useState(body);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(body), PAUSE);
    return () => clearTimeout(timer);
  }, [body]);
  const found = useQuery({
    queryKey: ['run', run.id, 'estimate', asked],
    queryFn: () => send<Estimated>('POST', path`/api/runs/${run.id}/fork/estimate`, bodyOf(draft, dialog)),
  });
  return (
    <div className="sec">
      <h3>
        {t('fork.estimate')}
        <span>{t('fork.noPromise')}</span>
      </h3>
      {found.isError && <Failure error={found.error} />}
      {found.data && (
        <table className="est">
          <tbody>
            <tr>
              <td>{t('fork.calls', { n: found.data.calls })}</td>
              <td>
                {found.data.cost === null
                  ? t('state.unknown')
                  : `${found.data.complete ? '' : '> '}${dollars(found.data.cost)}`}
              </td>
            </tr>
            {found.data.input_tokens !== null && (
              <tr>
                <td>{t('fork.tokens', { n: found.data.input_tokens + (found.data.output_tokens ?? 0) })}</td>
                <td />
              </tr>
            )}
          </tbody>
        </table>
      )}
    </div>
  );
}
