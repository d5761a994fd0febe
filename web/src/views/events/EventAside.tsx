import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { lazy, Suspense } from 'react';
import { get, path } from '../../api/client';
import type { EventDetail } from '../../api/types';
import { jsonText } from '../../base/json';
import { useWords } from '../../base/words';
import { Failure, Loading } from '../../widgets/states';
import { Copy } from '../../widgets/text';

const JsonView = lazy(() => import('../../widgets/JsonView').then(found => ({ default: found.JsonView })));

/** One event as it was sealed: every member of it, and the two hashes that hold it in the chain. */
export function EventAside({ run, sequence }: { readonly run: string; readonly sequence: number }) {
  const { t } = useWords();
  const found = useQuery({
    queryKey: ['run', run, 'event', sequence],
    queryFn: ({ signal }) => get<EventDetail>(path`/api/runs/${run}/events/${sequence}`, signal),
    placeholderData: before => before,
  });
  const event = found.data;
  return (
    <aside className="pane evaside" aria-label={t('report.event', { first: String(sequence) })}>
      {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
      {found.isPending && <Loading what={t('tab.events')} rows={8} />}
      {event && (
        <>
          <div className="row">
            <h2 className="ell">
              {event.sequence} {event.type}
            </h2>
            <span className="grow" />
            {event.step !== null && (
              <Link to="/runs/$id" params={{ id: run }} search={{ step: event.step, tab: 'events' }} className="btn s">
                {t('report.openStep', { step: event.step })}
              </Link>
            )}
          </div>
          <dl className="kv mono">
            <dt>{t('events.before')}</dt>
            <dd>{event.prev_hash}</dd>
            <dt>{t('events.col.hash')}</dt>
            <dd>{event.hash}</dd>
            {event.parent_seq !== null && (
              <>
                <dt>{t('events.cause')}</dt>
                <dd>
                  <Link to="/runs/$id/events" params={{ id: run }} search={{ event: event.parent_seq }}>
                    {event.parent_seq}
                  </Link>
                </dd>
              </>
            )}
          </dl>
          <Sealed event={event} />
          <p className="note">{t('events.sealedSay')}</p>
        </>
      )}
    </aside>
  );
}

function Sealed({ event }: { readonly event: EventDetail }) {
  const { t } = useWords();
  const text = jsonText(event.sealed, 2);
  return (
    <>
      <div className="row">
        <h3>{t('events.sealed')}</h3>
        <span className="grow" />
        <Copy text={text} />
      </div>
      <Suspense fallback={<Loading rows={8} />}>
        <JsonView text={text} label={t('events.sealed')} />
      </Suspense>
    </>
  );
}
