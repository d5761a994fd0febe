import { Link } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { path } from '../../api/client';
import { useStream } from '../../api/stream';
import type { Forked, Job } from '../../api/types';
import { shortId } from '../../base/format';
import { useWords } from '../../base/words';
import { isGoing, JobCard } from '../../widgets/JobCard';

/** A fork while it goes, with a way to each of its runs; when all is well it leads to what came of it. */
export function Watch({ begun, onDone }: { readonly begun: Forked; readonly onDone: () => void }) {
  const { t } = useWords();
  const [job, setJob] = useState<Job>(begun.job);
  useStream(isGoing(job) ? path`/api/jobs/${begun.job.id}/stream` : null, {
    job: data => setJob((data as { job: Job }).job),
  });
  const done = job.status === 'done';
  useEffect(() => {
    if (done) onDone();
  }, [done, onDone]);
  return (
    <>
      <h2>{t('fork.watch')}</h2>
      <JobCard job={job}>
        <p className="row wrap">
          {[...begun.runs, ...begun.controls].map(run => (
            <Link key={run.id} to="/runs/$id" params={{ id: run.id }} search={{}} className="mono">
              {shortId(run.id)}
            </Link>
          ))}
        </p>
      </JobCard>
    </>
  );
}
