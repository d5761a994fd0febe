import { useQuery } from '@tanstack/react-query';
import { address, get, path } from '../../api/client';
import type { EventEnvelope, Page } from '../../api/types';
import { useWords } from '../../base/words';
import { fates, isDamaged, marks, type ReplayReport } from '../../model/report';
import { Icon } from '../../widgets/Icon';
import { RunText } from '../../widgets/text';

const WIDTH = 240;

/** The whole tape in a line: what agreed, where it parted, what was left; and in words beneath. */
export function Tape({ report }: { readonly report: ReplayReport }) {
  const { t } = useWords();
  const events = useQuery({
    queryKey: ['events', report.run_id, 'tape'],
    queryFn: ({ signal }) =>
      get<Page<EventEnvelope>>(address(path`/api/runs/${report.run_id}/events`, { limit: WIDTH }), signal),
    enabled: report.events <= WIDTH,
  });
  const asked = events.data?.items.filter(event => event.type === 'model.requested').map(event => event.sequence);
  const drawn = marks(report, new Set(asked), WIDTH);
  const { agreed, bad, left } = fates(report);
  const counted = [
    t('report.agreed', { n: agreed }),
    ...(bad ? [t(isDamaged(report) ? 'report.bad' : 'report.diverged', { n: bad })] : []),
    ...(left ? [t('report.left', { n: left })] : []),
  ].join(' · ');
  return (
    <>
      <div className="tapebox">
        <div className="row">
          <h2 className="h3">{t('report.tape', { n: report.events })}</h2>
          <span className="grow" />
          <span className="note">
            {counted}
            {asked?.length ? ` · ${t('report.tall')}` : ''}
          </span>
        </div>
        <div className="tape" role="img" aria-label={counted}>
          {drawn.map(mark => (
            <i
              key={mark.first}
              className={`${mark.fate === 'agreed' ? '' : mark.fate} ${mark.tall ? 'm' : ''}`}
              title={t(mark.first === mark.last ? 'report.event' : 'report.eventsOf', {
                first: mark.first,
                last: mark.last,
              })}
            />
          ))}
        </div>
      </div>
      {report.divergence && <Line report={report} />}
    </>
  );
}

function Line({ report }: { readonly report: ReplayReport }) {
  const { t } = useWords();
  const { divergence } = report;
  if (!divergence) return null;
  const name = divergence.expected?.type ?? divergence.actual?.kind ?? '';
  const says = isDamaged(report) ? 'report.firstBad' : 'report.first';
  return (
    <div className="div">
      <span>
        <Icon sign="error" /> {t(says, { event: divergence.sequence ?? t('state.unknown') })}
        {name && <RunText>{`, ${name}`}</RunText>}
      </span>
      <span className="why">{t(kindOf(divergence.kind))}</span>
    </div>
  );
}

const KINDS = [
  'order',
  'name_changed',
  'input_changed',
  'extra',
  'missing',
  'unconsumed',
  'result_changed',
  'leak',
  'not_as_expected',
  'truncated',
  'corrupt',
  'version',
  'not_rebuildable',
] as const;

/** The words for a kind of divergence; one that this page does not know is an unknown one. */
export function kindOf(kind: string) {
  const known = KINDS.find(one => one === kind);
  return known ? (`report.kind.${known}` as const) : ('report.kind.unknown' as const);
}
