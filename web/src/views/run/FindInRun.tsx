import { useInfiniteQuery } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { address, get, path } from '../../api/client';
import type { RunDetail, Search } from '../../api/types';
import { useKeys } from '../../base/keys';
import { useWords } from '../../base/words';
import { Finder } from '../../widgets/slots';
import { Kbd, RunText } from '../../widgets/text';

interface FindProps {
  readonly run: RunDetail;
  readonly text: string;
  readonly onText: (text: string | undefined) => void;
  readonly onStep: (step: number) => void;
}

const HITS = 200;

/** Finds a text in names and bodies of a run, on the server, since a virtual list hides rows from the browser's own search. */
export function FindInRun({ run, text, onText, onStep }: FindProps) {
  const { t } = useWords();
  return (
    <>
      <Finder label={t('run.findPlaceholder')} value={text} onFind={found => onText(found || undefined)} />
      {text && <Found run={run} text={text} onStep={onStep} onClose={() => onText(undefined)} />}
    </>
  );
}

interface FoundProps {
  readonly run: RunDetail;
  readonly text: string;
  readonly onStep: (step: number) => void;
  readonly onClose: () => void;
}

function Found({ run, text, onStep, onClose }: FoundProps) {
  const { t } = useWords();
  const [at, setAt] = useState(-1);
  const found = useInfiniteQuery({
    queryKey: ['run', run.id, 'search', text],
    queryFn: ({ pageParam, signal }) =>
      get<Search>(address(path`/api/runs/${run.id}/search`, { q: text, first: pageParam, limit: HITS }), signal),
    initialPageParam: 0,
    getNextPageParam: last => last.next,
  });
  const hits = found.data?.pages.flatMap(page => page.items) ?? [];
  const looked = found.data?.pages.at(-1);
  // The server looks for a moment only, so that a long run holds up nobody: it is asked to go on.
  const { hasNextPage, isFetching, isError, fetchNextPage } = found;
  const goesOn = hasNextPage && !isFetching && !isError && hits.length < HITS;
  useEffect(() => {
    if (goesOn) void fetchNextPage();
  }, [goesOn, fetchNextPage]);
  const go = (by: number) => {
    if (!hits.length) return;
    const next = (at + by + hits.length) % hits.length;
    setAt(next);
    const hit = hits[next];
    if (hit) onStep(hit.idx);
  };
  const first = hits[0];
  useEffect(() => {
    if (!first) return;
    setAt(0);
    onStep(first.idx);
  }, [first, onStep]);
  useKeys({ n: () => go(1), p: () => go(-1) });
  const hit = hits[at];
  return (
    <div className="found" role="status">
      {looked && (
        <b>
          {hits.length || looked.next !== null
            ? t('run.hits', { q: text, n: hits.length, scanned: looked.scanned, of: looked.of })
            : t('run.noHits', { q: text, of: looked.of })}
        </b>
      )}
      {found.isError && <span className="st error">{found.error.message}</span>}
      {found.isPending && <span>{t('state.loading')}</span>}
      {hit && (
        <>
          <span className="dim nw">{t('run.hit', { k: at + 1, n: hits.length })}</span>
          <span className="ell mono grow">
            {hit.idx} {hit.where}: <RunText>{hit.before}</RunText>
            <mark>
              <RunText>{hit.match}</RunText>
            </mark>
            <RunText>{hit.after}</RunText>
          </span>
        </>
      )}
      <span className="grow" />
      <button type="button" className="btn s q" onClick={() => go(-1)}>
        <Kbd keys={['p']} /> {t('run.previousHit')}
      </button>
      <button type="button" className="btn s q" onClick={() => go(1)}>
        <Kbd keys={['n']} /> {t('run.nextHit')}
      </button>
      <button type="button" className="btn s q" onClick={onClose}>
        {t('app.close')}
      </button>
    </div>
  );
}
