import { QueryClient } from '@tanstack/react-query';
import { createRootRoute, createRoute, createRouter, Link, lazyRouteComponent, redirect } from '@tanstack/react-router';
import { ApiError } from '../api/client';
import { parseSearch, searchText } from '../base/address';
import { useWords } from '../base/words';
import {
  compareSearch,
  effectsSearch,
  eventsSearch,
  forkSearch,
  jobsSearch,
  lineageSearch,
  replaysSearch,
  runSearch,
  runsSearch,
  summarySearch,
} from '../model/addresses';
import { Failure } from '../widgets/states';
import { Shell } from './Shell';

const RETRIES = 2;

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      networkMode: 'always',
      staleTime: 5000,
      // What the server refused it will refuse again; what it did not hear is asked again.
      retry: (failed, error) => !(error instanceof ApiError && error.status < 500) && failed < RETRIES,
    },
    mutations: { networkMode: 'always' },
  },
});

function NotFound() {
  const { t } = useWords();
  return (
    <main className="page state">
      <h1>{t('state.notFound')}</h1>
      <Link to="/runs" className="btn" search={{}}>
        {t('state.toRuns')}
      </Link>
    </main>
  );
}

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound });
const home = createRoute({
  getParentRoute: () => root,
  path: '/',
  beforeLoad: () => {
    throw redirect({ to: '/runs', search: {}, replace: true });
  },
});
const runs = createRoute({
  getParentRoute: () => root,
  path: '/runs',
  validateSearch: runsSearch,
  component: lazyRouteComponent(() => import('../views/runs/RunsPage'), 'RunsPage'),
});

const run = createRoute({
  getParentRoute: () => root,
  path: '/runs/$id',
  validateSearch: runSearch,
  component: lazyRouteComponent(() => import('../views/run/RunPage'), 'RunPage'),
});

const events = createRoute({
  getParentRoute: () => root,
  path: '/runs/$id/events',
  validateSearch: eventsSearch,
  component: lazyRouteComponent(() => import('../views/events/EventsPage'), 'EventsPage'),
});

const compare = createRoute({
  getParentRoute: () => root,
  path: '/compare',
  validateSearch: compareSearch,
  component: lazyRouteComponent(() => import('../views/compare/ComparePage'), 'ComparePage'),
});
const summary = createRoute({
  getParentRoute: () => root,
  path: '/summary',
  validateSearch: summarySearch,
  component: lazyRouteComponent(() => import('../views/summary/SummaryPage'), 'SummaryPage'),
});
const lineage = createRoute({
  getParentRoute: () => root,
  path: '/lineage',
  validateSearch: lineageSearch,
  component: lazyRouteComponent(() => import('../views/lineage/LineagePage'), 'LineagePage'),
});
const fork = createRoute({
  getParentRoute: () => root,
  path: '/runs/$id/fork',
  validateSearch: forkSearch,
  component: lazyRouteComponent(() => import('../views/fork/ForkPage'), 'ForkPage'),
});
const jobs = createRoute({
  getParentRoute: () => root,
  path: '/jobs',
  validateSearch: jobsSearch,
  component: lazyRouteComponent(() => import('../views/jobs/JobsPage'), 'JobsPage'),
});
const job = createRoute({
  getParentRoute: () => root,
  path: '/jobs/$id',
  component: lazyRouteComponent(() => import('../views/jobs/JobPage'), 'JobPage'),
});
const replays = createRoute({
  getParentRoute: () => root,
  path: '/replays',
  validateSearch: replaysSearch,
  component: lazyRouteComponent(() => import('../views/replays/ReplaysPage'), 'ReplaysPage'),
});
const report = createRoute({
  getParentRoute: () => root,
  path: '/replays/$id',
  component: lazyRouteComponent(() => import('../views/replays/ReportPage'), 'ReportPage'),
});
const effects = createRoute({
  getParentRoute: () => root,
  path: '/effects',
  validateSearch: effectsSearch,
  component: lazyRouteComponent(() => import('../views/effects/EffectsPage'), 'EffectsPage'),
});
const settings = createRoute({
  getParentRoute: () => root,
  path: '/settings',
  component: lazyRouteComponent(() => import('../views/settings/SettingsPage'), 'SettingsPage'),
});

const tree = root.addChildren([
  home,
  runs,
  run,
  events,
  fork,
  compare,
  summary,
  lineage,
  effects,
  jobs,
  job,
  replays,
  report,
  settings,
]);

export const router = createRouter({
  routeTree: tree,
  parseSearch,
  stringifySearch: searchText,
  defaultPreload: 'intent',
  defaultErrorComponent: ({ error, reset }) => <Failure error={error} again={reset} />,
  scrollRestoration: false,
});

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router;
  }
}
