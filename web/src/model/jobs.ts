import type { Job } from '../api/types';

/** Where what came of a job is seen: two runs side by side, several summed up, or the report of a replay. */
export type Outcome =
  | { readonly see: 'report' }
  | { readonly see: 'compare'; readonly a: string; readonly b: string }
  | { readonly see: 'summary'; readonly runs: readonly string[] };

/** What there is to see of a job that made something; null while there is nothing. */
export function outcomeOf(job: Pick<Job, 'kind' | 'status' | 'parent' | 'run_ids' | 'progress'>): Outcome | null {
  if (job.kind === 'resume' || job.status === 'queued') return null;
  if (job.kind === 'replay') return job.status === 'done' ? { see: 'report' } : null;
  const [only, ...more] = job.run_ids;
  if (only === undefined || job.progress.runs === 0) return null;
  if (more.length === 0) return { see: 'compare', a: job.parent, b: only };
  return { see: 'summary', runs: [job.parent, ...job.run_ids] };
}

/** A word as a shell takes it: text of a run must not become a second command. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}
