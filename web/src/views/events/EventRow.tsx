import { Link } from '@tanstack/react-router';
import type { EventEnvelope } from '../../api/types';
import { signedSeconds } from '../../base/format';
import { useWords } from '../../base/words';
import { SourceTag } from '../../widgets/tags';
import { RunText } from '../../widgets/text';

/** Heights of a row and of the line above all rows, in pixels. */
export const ROW = 28;
export const HEAD = 29;

const COLUMNS = [
  ['events.col.seq', 'r'],
  ['events.col.type', ''],
  ['events.col.step', 'r'],
  ['events.col.name', ''],
  ['events.col.source', ''],
  ['events.col.call', ''],
  ['events.col.lane', ''],
  ['events.col.time', 'r'],
  ['events.col.input', 'hide-n'],
  ['events.col.output', 'hide-n'],
  ['events.col.hash', ''],
] as const;

export function Head() {
  const { t } = useWords();
  return (
    <div role="rowgroup" className="rhead">
      <div role="row" className="evrow head" aria-rowindex={1}>
        {COLUMNS.map(([word, look]) => (
          <span key={word} role="columnheader" className={`cell ${look}`}>
            {t(word)}
          </span>
        ))}
      </div>
    </div>
  );
}

interface EventRowProps {
  readonly top: number;
  readonly index: number;
  readonly event: EventEnvelope | undefined;
  readonly run: string;
  /** When the run began, in milliseconds. */
  readonly started: number;
  readonly current: boolean;
  readonly onOpen: (sequence: number) => void;
}

/** One event in a line: structure and digests; what it names is not in it. */
export function EventRow({ top, index, event, run, started, current, onOpen }: EventRowProps) {
  const { t } = useWords();
  return (
    <div
      role="row"
      aria-rowindex={index + 2}
      aria-current={current || undefined}
      className={`evrow ${current ? 'cur' : ''}`}
      style={{ transform: `translateY(${top}px)` }}
      onMouseDown={() => event && onOpen(event.sequence)}
    >
      {!event && (
        <span role="cell" className="cell skelcell">
          <span className="skel" />
        </span>
      )}
      {event && (
        <>
          <span role="cell" className="cell r dim">
            {event.sequence}
          </span>
          <span role="cell" className="cell">
            <b className="ell">{event.type}</b>
          </span>
          <span role="cell" className="cell r">
            {event.step !== null && (
              <Link
                to="/runs/$id"
                params={{ id: run }}
                search={{ step: event.step, tab: 'events' }}
                aria-label={t('step.title', { step: event.step })}
                tabIndex={current ? 0 : -1}
              >
                {event.step}
              </Link>
            )}
          </span>
          <span role="cell" className="cell">
            <span className="ell">
              <RunText>{event.name ?? ''}</RunText>
            </span>
          </span>
          <span role="cell" className="cell">
            {event.source !== null && event.source !== 'live' && <SourceTag source={event.source} />}
          </span>
          <Digest value={event.call_id} />
          <span role="cell" className="cell dim">
            <span className="ell">
              <RunText>{event.lane === null ? '' : `${event.lane}.${event.n ?? 0}`}</RunText>
            </span>
          </span>
          <span role="cell" className="cell r" title={event.recorded_at}>
            {signedSeconds((new Date(event.recorded_at).getTime() - started) / 1000)}
          </span>
          <Digest value={event.input_digest} look="hide-n" />
          <Digest value={event.output_digest} look="hide-n" />
          <Digest value={event.hash} />
        </>
      )}
    </div>
  );
}

function Digest({ value, look = '' }: { readonly value: string | null; readonly look?: string }) {
  return (
    <span role="cell" className={`cell dim ${look}`} title={value ?? undefined}>
      {value?.slice(0, 10)}
    </span>
  );
}
