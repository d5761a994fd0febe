import { Link } from '@tanstack/react-router';
import type { Job } from '../../api/types';
import { moment, shortId } from '../../base/format';
import { useWords } from '../../base/words';
import { outcomeOf } from '../../model/jobs';

/** When a job began, what it came from and what came of it. */
export function Links({ job }: { readonly job: Job }) {
  const { t, language } = useWords();
  return (
    <p className="row wrap note">
      <span title={job.created_at}>{moment(job.created_at, language)}</span>
      <Link to="/jobs/$id" params={{ id: job.id }} className="mono">
        {job.id}
      </Link>
      <Link to="/runs/$id" params={{ id: job.parent }} search={{}} className="mono">
        {job.parent}
      </Link>
      {job.run_ids
        .filter(id => id !== job.parent)
        .map(id => (
          <Link key={id} to="/runs/$id" params={{ id }} search={{}} className="mono">
            {shortId(id)}
          </Link>
        ))}
      <Outcome job={job} />
      {job.status === 'failed' && job.kind !== 'resume' && (
        <Link {...again(job)} className="btn s">
          {t(job.kind === 'fork' ? 'jobs.forkAgain' : 'report.again')}
        </Link>
      )}
    </p>
  );
}

/** Where a failed job is begun once more, with what was wrong mended. */
function again(job: Job) {
  if (job.kind === 'replay') return { to: '/replays', search: { run: job.parent } } as const;
  return { to: '/runs/$id/fork', params: { id: job.parent }, search: { from: job.from_step ?? undefined } } as const;
}

/** The one place where what came of a job is seen. */
function Outcome({ job }: { readonly job: Job }) {
  const { t } = useWords();
  const outcome = outcomeOf(job);
  if (!outcome) return null;
  if (outcome.see === 'report') {
    return (
      <Link to="/replays/$id" params={{ id: job.id }}>
        {t('jobs.report')}
      </Link>
    );
  }
  if (outcome.see === 'compare') {
    return (
      <Link to="/compare" search={{ a: outcome.a, b: outcome.b }}>
        {t('jobs.compare')}
      </Link>
    );
  }
  return (
    <Link to="/summary" search={{ run: outcome.runs }}>
      {t('jobs.summary', { n: outcome.runs.length })}
    </Link>
  );
}
