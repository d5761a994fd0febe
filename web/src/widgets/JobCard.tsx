import { useMutation } from '@tanstack/react-query';
import { type ReactNode, useEffect, useState } from 'react';
import { path, send } from '../api/client';
import type { Job } from '../api/types';
import { dollars } from '../base/format';
import { jsonText, parseJson } from '../base/json';
import { keepWho, keptWho } from '../base/reader';
import { useWords } from '../base/words';
import { reasonIn, sentenceIn } from '../base/words/said';
import { Failure } from './states';
import { Status, Tag } from './tags';
import { Command, RunText, Said } from './text';

const GOING = ['queued', 'running', 'waiting', 'rate_limited'];

/** Whether a job has still something to do. */
export function isGoing(job: Job): boolean {
  return GOING.includes(job.status);
}

interface JobCardProps {
  readonly job: Job;
  readonly children?: ReactNode;
}

/** How a job goes: where it is, what it waits for, how it ends. */
export function JobCard({ job, children }: JobCardProps) {
  const { t, language } = useWords();
  const stop = useMutation({ mutationFn: () => send<Job>('POST', path`/api/jobs/${job.id}/cancel`, {}) });
  const { progress } = job;
  return (
    <article className="jobcard" aria-label={`${t(`job.kind.${job.kind}`)} ${job.id}`}>
      <div className="row">
        <Status status={job.status} />
        <b>{t(`job.kind.${job.kind}`)}</b>
        <span className="grow" />
        {job.status === 'rate_limited' && <Countdown seconds={job.retry_after} />}
        {isGoing(job) && (
          <button
            type="button"
            className="btn s"
            disabled={job.cancelling || stop.isPending}
            onClick={() => stop.mutate()}
          >
            {t(job.cancelling || stop.isPending ? 'job.stopping' : job.kind === 'replay' ? 'jobs.stop' : 'job.stop')}
          </button>
        )}
      </div>
      {progress.of > 0 && (
        <p className="note">
          {t('job.progress', {
            runs: progress.runs,
            of: progress.of,
            steps: progress.steps,
            calls: progress.model_calls,
          })}
          {progress.cost !== null && ` · ${dollars(progress.cost)}`}
        </p>
      )}
      {job.message && <p className="t2">“{<RunText>{job.message}</RunText>}”</p>}
      {job.error && (
        <div className="failed">
          <span>
            {reasonIn(language, job.error.reason)} <RunText>{job.error.message}</RunText>
            {job.error.hint && <span className="t2"> {job.error.hint}</span>}
          </span>
        </div>
      )}
      {job.notes.map(note => (
        <p key={note} className="note">
          <Said>{note}</Said>
        </p>
      ))}
      {job.lacks && <Lacking job={job} lacks={job.lacks} />}
      {job.question && <Asking key={job.question.id} job={job} question={job.question} />}
      {stop.isError && <Failure error={stop.error} />}
      {children}
    </article>
  );
}

interface LackingProps {
  readonly job: Job;
  readonly lacks: NonNullable<Job['lacks']>;
}

/** A job whose worker is not there: what to type. */
function Lacking({ job, lacks }: LackingProps) {
  const { t } = useWords();
  return (
    <section className="lacking" role="status">
      <p>
        <b>{job.agent === null ? <RunText>{lacks.message}</RunText> : t('jobs.noWorker', { agent: job.agent })}</b>{' '}
        <span className="t2">{t('jobs.noWorkerSay')}</span>
      </p>
      {lacks.command && <Command>{lacks.command}</Command>}
    </section>
  );
}

/** The seconds until a provider may be asked again, counted down. */
function Countdown({ seconds }: { readonly seconds: number | null }) {
  const { t } = useWords();
  const [left, setLeft] = useState(Math.ceil(seconds ?? 0));
  useEffect(() => setLeft(Math.ceil(seconds ?? 0)), [seconds]);
  useEffect(() => {
    const timer = setInterval(() => setLeft(before => Math.max(0, before - 1)), 1000);
    return () => clearInterval(timer);
  }, []);
  return seconds === null ? null : <b>{t('job.goesOn', { n: left })}</b>;
}

interface AskingProps {
  readonly job: Job;
  readonly question: NonNullable<Job['question']>;
}

/** A call without an answer, and a field for the person who gives one. */
function Asking({ job, question }: AskingProps) {
  const { t, language } = useWords();
  const [text, setText] = useState('');
  const [who, setWho] = useState(keptWho);
  const answer = useMutation({
    mutationFn: (failed: boolean) => {
      keepWho(who);
      const said = failed ? { error: text } : { result: resultIn(text) };
      return send<Job>('POST', path`/api/jobs/${job.id}/answer`, { question: question.id, who, ...said });
    },
  });
  const ready = text.trim() !== '' && who.trim() !== '' && !answer.isPending;
  // What was answered is not asked again while the fork takes it.
  if (answer.isSuccess) return null;
  return (
    <form className="asking" onSubmit={event => event.preventDefault()}>
      <p className="call missed">
        <span className="sig">
          <b>
            <RunText>{question.tool}</RunText>
          </b>{' '}
          <RunText>{jsonText(question.arguments)}</RunText>
        </span>
        <Tag look="miss" sign="miss">
          {t('source.miss')}
        </Tag>
      </p>
      <p className="note">
        {question.nearest && <RunText>{t('job.nearest', { text: sentenceIn(language, question.nearest) })}</RunText>}{' '}
        {t('job.waits')}
      </p>
      <textarea
        className="inp"
        rows={3}
        aria-label={t('job.result')}
        placeholder={t('job.result')}
        value={text}
        onChange={event => setText(event.target.value)}
      />
      <div className="row wrap">
        <input
          className="inp who"
          aria-label={t('job.who')}
          placeholder={t('job.who')}
          value={who}
          onChange={event => setWho(event.target.value)}
        />
        <button type="button" className="btn p" disabled={!ready} onClick={() => answer.mutate(false)}>
          {t('job.give')}
        </button>
        <button type="button" className="btn" disabled={!ready} onClick={() => answer.mutate(true)}>
          {t('job.giveError')}
        </button>
      </div>
      {answer.isError && <Failure error={answer.error} />}
    </form>
  );
}

/** JSON if it is JSON, else the text as it was typed. */
function resultIn(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return text;
  }
}
