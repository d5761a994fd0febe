import { Component, type ReactNode, useEffect, useState } from 'react';
import { ApiError, Unreachable } from '../api/client';
import { useWords } from '../base/words';
import { reasonIn, saysAll, whyIn } from '../base/words/said';
import { Icon } from './Icon';

interface FailureProps {
  readonly error: unknown;
  readonly again?: (() => void) | undefined;
  readonly children?: ReactNode;
}

/** Refusals that come again however often one asks: the question is wrong, or there is nothing of that name. */
const LASTING = [400, 404, 405, 413, 422];

/** What happened, what it means, the way out: another try where it may help, else the way back. */
export function Failure({ error, again, children }: FailureProps) {
  const { t } = useWords();
  const { title, hint } = useSaid(error);
  const lasting = error instanceof ApiError && LASTING.includes(error.status);
  return (
    <div className="state" role="alert">
      <p className="st error">
        <Icon sign="error" />
        <b>{title}</b>
      </p>
      {hint && (
        <p className="t2" lang="en">
          {hint}
        </p>
      )}
      {children}
      {lasting && (again || error.status === 404) && (
        <a className="btn" href="/runs">
          {t('state.toRuns')}
        </a>
      )}
      {again && !lasting && (
        <button type="button" className="btn" onClick={again}>
          {t('state.retry')}
        </button>
      )}
    </div>
  );
}

function useSaid(error: unknown): { readonly title: string; readonly hint: string | null } {
  const { t, language } = useWords();
  if (error instanceof Unreachable) return { title: t('state.unreachable'), hint: t('state.unreachable.hint') };
  if (!(error instanceof ApiError))
    return { title: t('state.broke'), hint: error instanceof Error ? error.message : null };
  if (error.status === 401) return { title: t('state.unauthorized'), hint: t('state.unauthorized.hint') };
  // A hint that names a request is for programs.
  const hint = error.hint?.startsWith('GET /') ? null : error.hint;
  const repeated = reasonIn(language, error.reason) !== null && !saysAll(language, error.reason);
  const more = [repeated ? error.message : null, hint].filter(text => text !== null).join(' · ');
  return { title: whyIn(language, error.reason, error.message), hint: more || null };
}

const SLOW = 2000;

/** Outlines of what comes; after 2 s also what it is. */
export function Loading({ what, rows = 3 }: { readonly what?: string; readonly rows?: number }) {
  const { t } = useWords();
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSlow(true), SLOW);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className="state" aria-busy="true">
      <span className="vh" role="status">
        {t('state.loading')}
      </span>
      {Array.from({ length: rows }, (_, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: outlines are alike
        <div key={at} className="skel" style={{ width: `${90 - ((at * 37) % 50)}%` }} />
      ))}
      {slow && what && <p className="note">{t('state.still', { what })}</p>}
    </div>
  );
}

interface StripProps {
  readonly look?: 'warn' | 'error' | 'plain';
  readonly children: ReactNode;
  readonly actions?: ReactNode;
}

/** A line above every conclusion that cannot be closed. */
export function Strip({ look = 'warn', children, actions }: StripProps) {
  return (
    <div className={`loud ${look}`} role="status">
      <Icon sign={look === 'error' ? 'error' : look === 'plain' ? 'info' : 'warn'} />
      <span>{children}</span>
      <span className="grow" />
      {actions}
    </div>
  );
}

interface CatcherState {
  readonly error: unknown;
}

/** Keeps a fault of one part from taking the page with it. */
export class Catcher extends Component<{ readonly children: ReactNode }, CatcherState> {
  override state: CatcherState = { error: null };

  static getDerivedStateFromError(error: unknown): CatcherState {
    return { error };
  }

  override render() {
    if (this.state.error === null) return this.props.children;
    return <Failure error={this.state.error} again={() => this.setState({ error: null })} />;
  }
}
