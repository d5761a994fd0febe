import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { address, get } from '../../api/client';
import type { Reports } from '../../api/types';
import { moment } from '../../base/format';
import { jsonText } from '../../base/json';
import { useWords } from '../../base/words';
import { Finder, Foot } from '../../widgets/slots';
import { Failure, Loading } from '../../widgets/states';
import { Badge } from '../../widgets/tags';
import { RunText } from '../../widgets/text';

const route = getRouteApi('/replays');

/** Replays that were done from the page, with where they parted from the tape. */
export function ReplaysPage() {
  const { t, language } = useWords();
  const { run } = route.useSearch();
  const navigate = route.useNavigate();
  const found = useQuery({
    queryKey: ['reports', run],
    queryFn: ({ signal }) => get<Reports>(address('/api/reports', { run }), signal),
  });
  return (
    <main className="page">
      <Finder label={t('app.find')} value="" onFind={q => void navigate({ to: '/runs', search: { q } })} />
      <div className="hd">
        <h1>{t('replay.title')}</h1>
      </div>
      {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
      {found.isPending && <Loading what={t('replay.title')} />}
      {found.data?.items.length === 0 && <p className="state t2">{t('replay.none')}</p>}
      <div className="jobs">
        {found.data?.items.map(report => (
          <details key={report.id} className="jobcard">
            <summary className="row">
              <Badge bad={report.passed === false}>
                {t(report.passed === null ? 'replay.noResult' : report.passed ? 'replay.passed' : 'replay.diverged')}
              </Badge>
              <Link to="/runs/$id" params={{ id: report.run_id }} search={{}} className="mono">
                {report.run_id}
              </Link>
              <span className="grow" />
              <span className="dim">{moment(report.at, language)}</span>
            </summary>
            <pre>
              <RunText>{jsonText(report.report ?? null, 2)}</RunText>
            </pre>
          </details>
        ))}
      </div>
      <Foot hints={[{ keys: ['?'], does: 'key.all' }]} />
    </main>
  );
}
