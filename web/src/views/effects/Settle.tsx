import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { type ReactNode, useState } from 'react';
import { ApiError, get, getText, path, send } from '../../api/client';
import type { OpenEffect, OpenEffects, SettledEffect } from '../../api/types';
import { moment } from '../../base/format';
import { keepWho, keptWho } from '../../base/reader';
import { useWords } from '../../base/words';
import { EMPTY_WORD, OUTCOMES, settleBody, settleFault, type Word } from '../../model/settle';
import { Dialog } from '../../widgets/controls';
import { Failure, Loading } from '../../widgets/states';
import { Command, Copy, RunText, Unknown } from '../../widgets/text';

interface SettleProps {
  readonly run: string;
  readonly call: string;
  readonly onClose: () => void;
}

/** One effect whose end nobody saw: what was asked for, and the word of a person who found out. */
export function Settle({ run, call, onClose }: SettleProps) {
  const { t } = useWords();
  const queries = useQueryClient();
  const found = useQuery({
    queryKey: ['effects', run, 'form'],
    queryFn: ({ signal }) => get<OpenEffects>(path`/api/runs/${run}/effects`, signal),
    staleTime: 0,
  });
  const settled = useMutation({
    mutationFn: (word: Word) => {
      keepWho(word.by.trim());
      return send<SettledEffect>('POST', path`/api/runs/${run}/effects`, settleBody(call, word));
    },
    onSettled: () => {
      void queries.invalidateQueries({ queryKey: ['run', run] });
      void queries.invalidateQueries({ queryKey: ['effects'], predicate: query => query.queryKey[2] !== 'form' });
    },
  });
  const effect = found.data?.items.find(one => one.call_id === call);
  return (
    <Dialog title={t('effects.form')} onClose={onClose}>
      <div className="settle">
        {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
        {found.isPending && <Loading what={t('effects.form')} rows={5} />}
        {settled.data && <Done settled={settled.data} />}
        {found.data && !effect && !settled.data && <p role="status">{t('effects.notOpen')}</p>}
        {effect && !settled.data && (
          <>
            <About effect={effect} />
            <Form busy={settled.isPending} onSay={settled.mutate} />
          </>
        )}
        {settled.isError && <Refused error={settled.error} />}
      </div>
    </Dialog>
  );
}

/** Why it could not be said: the run's process lives, or somebody was quicker. */
function Refused({ error }: { readonly error: Error }) {
  const { t } = useWords();
  const reason = error instanceof ApiError ? error.reason : '';
  const say = reason === 'owner_alive' ? 'effects.ownerAlive' : reason === 'settled' ? 'effects.already' : null;
  return <Failure error={error}>{say && <p className="t2">{t(say)}</p>}</Failure>;
}

function About({ effect }: { readonly effect: OpenEffect }) {
  const { t, language } = useWords();
  const given = useQuery({
    queryKey: ['run', effect.run_id, 'step', effect.step, 'raw', 'input', 'short'],
    queryFn: ({ signal }) => getText(path`/api/runs/${effect.run_id}/steps/${effect.step}/raw/input`, signal),
  });
  return (
    <dl className="kv">
      <dt>{t('effects.col.run')}</dt>
      <dd>
        <Link to="/runs/$id" params={{ id: effect.run_id }} search={{ step: effect.step }}>
          <RunText>{effect.run_name}</RunText>
        </Link>{' '}
        <span className="mono dim">
          <RunText>{effect.run_id}</RunText>
        </span>
      </dd>
      <dt>{t('effects.col.tool')}</dt>
      <dd className="mono">
        <b>
          <RunText>{effect.tool}</RunText>
        </b>
      </dd>
      <dt>{t('effects.arguments')}</dt>
      <dd className="mono given">{given.data === undefined ? <Unknown /> : <RunText>{given.data}</RunText>}</dd>
      <dt>{t('effects.col.key')}</dt>
      <dd className="mono row">
        {effect.idempotency_key === null ? (
          <Unknown />
        ) : (
          <>
            <RunText>{effect.idempotency_key}</RunText>
            <Copy text={effect.idempotency_key} label={t('effects.copyKey')} />
          </>
        )}
      </dd>
      <dt>{t('effects.col.since')}</dt>
      <dd>{moment(effect.since, language)}</dd>
    </dl>
  );
}

function Form({ busy, onSay }: { readonly busy: boolean; readonly onSay: (word: Word) => void }) {
  const { t } = useWords();
  const [word, setWord] = useState<Word>({ ...EMPTY_WORD, by: keptWho() });
  const change = (next: Partial<Word>) => setWord(before => ({ ...before, ...next }));
  const fault = settleFault(word);
  return (
    <form
      className="stack"
      onSubmit={event => {
        event.preventDefault();
        if (fault === null && !busy) onSay(word);
      }}
    >
      <fieldset className="opt">
        <legend className="lbl">{t('effects.outcome')}</legend>
        {OUTCOMES.map((name, at) => (
          <label key={name}>
            <input
              type="radio"
              name="outcome"
              checked={word.outcome === name}
              {...(at === 0 ? { 'data-first': true } : {})}
              onChange={() => change({ outcome: name })}
            />
            <span>
              {t(`effects.outcome.${name}`)} <span className="note">{t(`effects.outcome.${name}.say`)}</span>
            </span>
          </label>
        ))}
      </fieldset>
      {word.outcome === 'finished' && (
        <Field label={t('effects.result')}>
          <textarea
            className="inp mono"
            rows={3}
            value={word.result}
            onChange={event => change({ result: event.target.value })}
          />
        </Field>
      )}
      {word.outcome === 'failed' && (
        <Field label={t('effects.errorText')}>
          <input className="inp" value={word.error} onChange={event => change({ error: event.target.value })} />
        </Field>
      )}
      {word.outcome !== 'not_done' && word.outcome !== null && (
        <Field label={t('effects.externalId')}>
          <input
            className="inp mono"
            value={word.externalId}
            onChange={event => change({ externalId: event.target.value })}
          />
        </Field>
      )}
      <Field label={t('effects.why')}>
        <textarea className="inp" rows={2} value={word.why} onChange={event => change({ why: event.target.value })} />
      </Field>
      <Field label={t('effects.by')}>
        <input className="inp" value={word.by} onChange={event => change({ by: event.target.value })} />
      </Field>
      <div className="row">
        <button type="submit" className="btn p" disabled={fault !== null || busy} aria-describedby="settle-off">
          {t(busy ? 'effects.saying' : word.outcome ? `effects.sayIt.${word.outcome}` : 'effects.settle')}
        </button>
        <span id="settle-off" className="note">
          {fault === null ? t('effects.once') : t(fault)}
        </span>
      </div>
    </form>
  );
}

function Field({ label, children }: { readonly label: string; readonly children: ReactNode }) {
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the field is among the children
    <label className="field">
      <span className="lbl">{label}</span>
      {children}
    </label>
  );
}

function Done({ settled }: { readonly settled: SettledEffect }) {
  const { t } = useWords();
  return (
    <div role="status" className="stack">
      <p>
        <b>{t(`effects.settled.${settled.outcome}`, { tool: settled.tool })}</b>{' '}
        <Link to="/runs/$id/events" params={{ id: settled.run_id }} search={{ event: settled.sequence }}>
          {t('report.event', { first: settled.sequence })}
        </Link>
      </p>
      <p className="t2">{t('effects.resume')}</p>
      <Command>{`agentloupe resume ${settled.run_id}`}</Command>
    </div>
  );
}
