import { useMutation, useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type ReactNode, useDeferredValue, useEffect, useState } from 'react';
import { ApiError, path, send } from '../../api/client';
import type { Estimated, ForkDialog, Forked, RunDetail } from '../../api/types';
import { dollars } from '../../base/format';
import { jsonText } from '../../base/json';
import { useKeys } from '../../base/keys';
import { useWords } from '../../base/words';
import { whyIn } from '../../base/words/said';
import {
  answers,
  bodyOf,
  changes,
  type Draft,
  lineCount,
  liveOf,
  type Problem,
  problems,
  signedEdits,
} from '../../model/draft';
import { furtherInstructions } from '../../model/request';
import { Icon, type Sign } from '../../widgets/Icon';
import { Failure } from '../../widgets/states';
import { Command, Kbd, RunText, Said } from '../../widgets/text';
import { FaultText } from './FaultText';
import { Watch } from './Watch';

interface AsideProps {
  readonly run: RunDetail;
  readonly dialog: ForkDialog;
  readonly draft: Draft;
  readonly onBack: () => void;
  /** Called with the job that was begun. */
  readonly onStart: (job: string) => void;
}

/** What to know before, what it may cost, and the button; then how it goes. */
export function Aside({ run, dialog, draft, onBack, onStart }: AsideProps) {
  const { t } = useWords();
  const navigate = useNavigate();
  const start = useMutation({
    mutationFn: () => send<Forked>('POST', path`/api/runs/${run.id}/fork`, bodyOf(draft, dialog)),
    onSuccess: begun => onStart(begun.job.id),
  });
  const found = problems(draft, dialog);
  const estimate = useEstimate(run, dialog, draft, found.length === 0);
  const off = useOff(dialog, draft, found, estimate.error);
  const ready = off.length === 0 && !start.isPending && !start.isSuccess;
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
            <Know dialog={dialog} draft={draft} />
            <Changed dialog={dialog} draft={draft} wrong={found.length > 0} />
            <Estimate found={estimate} draft={draft} />
            {start.isError && <Failure error={start.error} />}
          </>
        )}
      </div>
      <div className="act">
        {off.length > 0 && !begun && (
          <ul className="whyoff" id="fork-off">
            {off.map((why, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: reasons are in a fixed order
              <li key={at} className="st error">
                {why}
              </li>
            ))}
          </ul>
        )}
        <button
          type="button"
          className="btn p"
          disabled={!ready}
          aria-describedby={off.length > 0 ? 'fork-off' : undefined}
          onClick={go}
        >
          <Icon sign={start.isPending ? 'run' : 'fork'} />
          {start.isPending ? t('fork.starting') : <RunWords draft={draft} />} <Kbd keys={['Ctrl', 'Enter']} />
        </button>
        <button type="button" className="btn" onClick={onBack}>
          {t(begun ? 'fork.leave' : 'fork.cancel')} <Kbd keys={['Escape']} />
        </button>
      </div>
    </aside>
  );
}

/** Why the fork cannot be started as it is; nothing where it can. */
function useOff(
  dialog: ForkDialog,
  draft: Draft,
  found: readonly Problem[],
  refused: ApiError | null,
): readonly ReactNode[] {
  const { t, language } = useWords();
  const engine = dialog.engines.find(one => one.engine === draft.engine);
  const off: ReactNode[] = [];
  if (engine && !engine.available) {
    off.push(
      <>
        {whyIn(language, engine.why_not_code, engine.why_not)} {engine.command && <Command>{engine.command}</Command>}
      </>,
    );
  }
  if (dialog.endpoints.length === 0 && draft.engine === 'generic') off.push(t('fork.noEndpoint'));
  for (const { part, which, fault } of found) {
    off.push(
      <>
        <b>
          <RunText>{t(`fork.part.${part}`, { which })}</RunText>
        </b>{' '}
        <FaultText fault={fault} />
      </>,
    );
  }
  if (off.length === 0 && refused) {
    off.push(
      <>
        <RunText>{refused.message}</RunText> {refused.hint && <span className="t2">{refused.hint}</span>}
      </>,
    );
  }
  return off;
}

function RunWords({ draft }: { readonly draft: Draft }) {
  const { t } = useWords();
  const n = draft.repeat;
  return draft.control ? t('fork.runBoth', { n, controls: n }) : t('fork.run', { n });
}

function Know({ dialog, draft }: { readonly dialog: ForkDialog; readonly draft: Draft }) {
  const { t } = useWords();
  const writers = dialog.tools.filter(tool => tool.effect === 'write').map(tool => tool.name);
  const step = dialog.from_step;
  const { answers: kept } = dialog.kept;
  const live = liveOf(draft);
  const further = draft.prompt === null ? [] : furtherInstructions(dialog.request, dialog.form);
  const signed = signedEdits(draft, dialog);
  const asked = dialog.endpoints.find(one => one.name === draft.endpoint);
  const model = draft.parameters['model']?.trim() || (dialog.model ?? asked?.model ?? '');
  return (
    <>
      <h2>{t('fork.before')}</h2>
      <ul className="know">
        <Line
          sign="kept"
          look="kept"
          head={dialog.at_start ? t('fork.know.start') : t('fork.know.kept', { n: dialog.kept.steps })}
        >
          {kept > 0 && t(draft.prompt === null ? 'fork.know.answers' : 'fork.know.oldAnswers', { n: kept })}
        </Line>
        <Line sign="live" look="live" head={t('fork.know.model', { step })}>
          {model && <RunText>{t('fork.know.sentTo', { model })}</RunText>}
        </Line>
        <Line sign="cassette" look="cassette" head={t('fork.know.tools')}>
          {live.length > 0 && <RunText>{t('fork.know.live', { names: live.join(', ') })}</RunText>}
        </Line>
        {writers.length > 0 && (
          <Line sign="lock" head={<RunText>{t('fork.know.write', { name: writers.join(', ') })}</RunText>}>
            {t('fork.know.approval')}
          </Line>
        )}
        <Line sign="miss" look="missed" head={t('fork.know.miss')}>
          {t('fork.know.missSay')}
        </Line>
        <Line sign="info" look="dim" head={t('fork.know.control')}>
          {t('fork.know.controlSay')}
        </Line>
        {further.length > 0 && (
          <Line sign="warn" look="missed" head={t('fork.know.further', { places: further.join(', ') })} />
        )}
        {signed.length > 0 && (
          <Line sign="warn" look="missed" head={t('fork.know.signed', { places: signed.join(', ') })}>
            {t('fork.know.signedSay')}
          </Line>
        )}
        {dialog.server_held && <Line sign="warn" look="missed" head={t('fork.know.held')} />}
        {dialog.cautions.map(caution => (
          <Line key={caution} sign="warn" look="missed" head={<Said>{caution}</Said>} />
        ))}
      </ul>
    </>
  );
}

interface LineProps {
  readonly sign: Sign;
  readonly look?: string;
  readonly head: ReactNode;
  readonly children?: ReactNode;
}

function Line({ sign, look = '', head, children }: LineProps) {
  return (
    <li>
      <span className={`lead ${look}`}>
        <Icon sign={sign} />
      </span>
      <span>
        <b>{head}</b> {children}
      </span>
    </li>
  );
}

/** What is changed in the requests, and by whom tools are answered. */
function Changed({
  dialog,
  draft,
  wrong,
}: {
  readonly dialog: ForkDialog;
  readonly draft: Draft;
  readonly wrong: boolean;
}) {
  const { t } = useWords();
  const made = changes(draft, dialog);
  const others = answers(draft);
  return (
    <div className="sec">
      <h3>
        {t('fork.overrides')}
        <span>{made.length}</span>
      </h3>
      <div className="box in">
        {made.length === 0 && others.length === 0 && <p>{t(wrong ? 'fork.wrong' : 'fork.nothing')}</p>}
        {made.map(({ word, which }) => (
          <p key={`${word} ${which}`}>
            <b>{t(word)}</b> <RunText>{which}</RunText>
            {word === 'override.system_prompt' && draft.prompt !== null && (
              <span className="dim">{t('fork.lines', lineCount(dialog.system_prompt ?? '', draft.prompt))}</span>
            )}
          </p>
        ))}
        {made.length > 0 && (
          <p className="note">
            {dialog.at_start ? t('fork.sentStart') : t('fork.sentLater', { step: dialog.from_step })}
          </p>
        )}
        {others.map(([name, policy]) => (
          <p key={name}>
            <b>
              <RunText>{name}</RunText>
            </b>{' '}
            {t('fork.answeredBy', { policy: t(`fork.policy.${policy as 'live' | 'stub' | 'human'}`) })}
          </p>
        ))}
      </div>
    </div>
  );
}

const PAUSE = 500;

interface Estimation {
  readonly data: Estimated | undefined;
  /** Why the server would refuse this fork. */
  readonly error: ApiError | null;
  readonly broken: Error | null;
}

/** What the fork is likely to ask and cost; asked anew when the draft has rested for a moment. */
function useEstimate(run: RunDetail, dialog: ForkDialog, draft: Draft, wanted: boolean): Estimation {
  const body = useDeferredValue(jsonText(bodyOf(draft, dialog)));
  const [asked, setAsked] = useState(body);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(body), PAUSE);
    return () => clearTimeout(timer);
  }, [body]);
  const found = useQuery({
    queryKey: ['run', run.id, 'estimate', asked],
    queryFn: () => send<Estimated>('POST', path`/api/runs/${run.id}/fork/estimate`, bodyOf(draft, dialog)),
    enabled: wanted && asked === body,
    placeholderData: before => before,
    retry: false,
  });
  const refused = found.error instanceof ApiError && found.error.status < 500 ? found.error : null;
  const current = wanted && asked === body;
  return {
    data: found.isError ? undefined : found.data,
    error: current ? refused : null,
    broken: found.error && !refused ? found.error : null,
  };
}

function Estimate({ found, draft }: { readonly found: Estimation; readonly draft: Draft }) {
  const { t } = useWords();
  const { data } = found;
  const cost = data && data.cost !== null ? `${data.complete ? '' : '> '}${dollars(data.cost)}` : t('state.unknown');
  const max = draft.limits['max_cost']?.trim();
  return (
    <div className="sec">
      <h3>
        {t('fork.estimate')}
        <span>{t('fork.noPromise')}</span>
      </h3>
      {found.broken && <Failure error={found.broken} />}
      {data && (
        <table className="est">
          <tbody>
            <tr>
              <td>{t('fork.estimateRuns', { n: draft.repeat })}</td>
              <td />
            </tr>
            {draft.control && (
              <tr>
                <td>{t('fork.estimateControls', { n: draft.repeat })}</td>
                <td />
              </tr>
            )}
            <tr>
              <td>
                {t('fork.calls', { n: data.calls })}
                {data.input_tokens !== null &&
                  `, ${t('fork.tokens', { n: data.input_tokens + (data.output_tokens ?? 0) })}`}
              </td>
              <td>{cost}</td>
            </tr>
          </tbody>
        </table>
      )}
      <p className="note">{max ? t('fork.stopsAt', { cost: dollars(max) ?? max }) : t('fork.noCostLimit')}</p>
    </div>
  );
}
