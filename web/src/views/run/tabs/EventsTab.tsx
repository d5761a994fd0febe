import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { address, get, path } from '../../../api/client';
import type { EventEnvelope, Page } from '../../../api/types';
import { signedSeconds } from '../../../base/format';
import { jsonText } from '../../../base/json';
import { useWords } from '../../../base/words';
import { Failure, Loading } from '../../../widgets/states';
import { RunText } from '../../../widgets/text';
import type { PanelProps } from '../Inspector';

const LIMIT = 500;

/** The facts beneath a step: its events, with digests of what was said. */
export function EventsTab({ run, detail }: PanelProps) {
  const { t } = useWords();
  const found = useQuery({
    queryKey: ['run', run.id, 'step', detail.idx, 'events'],
    queryFn: ({ signal }) =>
      get<Page<EventEnvelope>>(address(path`/api/runs/${run.id}/events`, { step: detail.idx, limit: LIMIT }), signal),
  });
  if (found.isError) return <Failure error={found.error} again={() => void found.refetch()} />;
  if (!found.data) return <Loading what={t('tab.events')} rows={4} />;
  const start = new Date(run.started_at).getTime();
  return (
    <section className="panel">
      <table className="ev">
        <tbody>
          {found.data.items.map(event => (
            <tr key={event.sequence} title={jsonText(event.attrs)}>
              <td className="r">
                <Link to="/runs/$id/events" params={{ id: run.id }} search={{ event: event.sequence }}>
                  {event.sequence}
                </Link>
              </td>
              <td>{event.type}</td>
              <td className="dim ell">
                <RunText>{event.name ?? ''}</RunText>
              </td>
              <td className="dim">{(event.output_digest ?? event.input_digest ?? event.hash).slice(0, 12)}</td>
              <td className="r">{signedSeconds((new Date(event.recorded_at).getTime() - start) / 1000)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p className="note">
        {found.data.total ? t('events.of', { n: found.data.items.length, total: found.data.total }) : t('events.none')}
      </p>
      <p className="row wrap">
        {found.data.total > LIMIT && (
          <Link to="/runs/$id/events" params={{ id: run.id }} search={{ step: detail.idx }} className="btn s">
            {t('events.this')}
          </Link>
        )}
        <Link
          to="/runs/$id/events"
          params={{ id: run.id }}
          search={{ event: found.data.items[0]?.sequence }}
          className="btn s"
        >
          {t('events.all')}
        </Link>
      </p>
    </section>
  );
}
