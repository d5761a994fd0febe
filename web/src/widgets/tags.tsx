import type { ReactNode } from 'react';
import { useWords, type WordKey } from '../base/words';
import { Icon, type Sign } from './Icon';

export type SourceName = 'live' | 'cassette' | 'stub' | 'sandbox' | 'simulated' | 'human' | 'miss' | 'recorded';

const LOOKS: Readonly<Record<SourceName, { readonly look: string; readonly sign?: Sign }>> = {
  live: { look: 'live', sign: 'live' },
  cassette: { look: 'cassette', sign: 'cassette' },
  miss: { look: 'miss', sign: 'miss' },
  recorded: { look: 'kept', sign: 'kept' },
  stub: { look: '' },
  sandbox: { look: '' },
  human: { look: 'made' },
  simulated: { look: 'made' },
};

interface TagProps {
  readonly look?: string;
  readonly sign?: Sign | undefined;
  readonly title?: string;
  readonly children: ReactNode;
}

/** A small label: sign and word, never colour alone. */
export function Tag({ look = '', sign, title, children }: TagProps) {
  return (
    <span className={`tag ${look}`} title={title}>
      {sign && <Icon sign={sign} />}
      <span>{children}</span>
    </span>
  );
}

/** Where an answer came from. */
export function SourceTag({ source }: { readonly source: SourceName }) {
  const { t } = useWords();
  const { look, sign } = LOOKS[source];
  return (
    <Tag look={look} sign={sign}>
      {t(`source.${source}`)}
    </Tag>
  );
}

/** How many answers came from there; shown where they are counted. */
export function SourceCount({ source, n, worded = false }: { source: SourceName; n: number; worded?: boolean }) {
  const { t } = useWords();
  const { look, sign } = LOOKS[source];
  if (worded && source === 'miss') {
    return (
      <Tag look={look} sign={sign}>
        {t('source.misses', { n })}
      </Tag>
    );
  }
  return (
    <Tag look={look} sign={sign} title={t(`source.${source}`)}>
      {worded || !sign ? `${t(`source.${source}`)} ${n}` : <Named word={t(`source.${source}`)} n={n} />}
    </Tag>
  );
}

function Named({ word, n }: { readonly word: string; readonly n: number }) {
  return (
    <>
      <span className="vh">{word} </span>
      {n}
    </>
  );
}

const STATUS_LOOKS: Readonly<Record<string, { readonly look: string; readonly sign: Sign }>> = {
  ok: { look: 'ok', sign: 'check' },
  done: { look: 'ok', sign: 'check' },
  error: { look: 'error', sign: 'error' },
  failed: { look: 'error', sign: 'error' },
  running: { look: 'run', sign: 'run' },
  open: { look: 'run', sign: 'run' },
  queued: { look: 'int', sign: 'pause' },
  waiting: { look: 'wait', sign: 'pause' },
  rate_limited: { look: 'wait', sign: 'pause' },
  cancelled: { look: 'int', sign: 'int' },
  interrupted: { look: 'int', sign: 'int' },
};

/** How a run or a job stands. "ok" is silent: no colour. */
export function Status({ status, children }: { readonly status: string; readonly children?: ReactNode }) {
  const { t } = useWords();
  const { look, sign } = STATUS_LOOKS[status] ?? { look: '', sign: 'info' as const };
  const going = status === 'running' || status === 'open';
  return (
    <span className={`st ${look}`}>
      <Icon sign={sign} className={going ? 'pulse' : ''} />
      {children ?? (status in STATUS_LOOKS ? t(`status.${status}` as WordKey) : status)}
    </span>
  );
}

export type CoverageName = 'full' | 'control_flow' | 'limited_replay' | 'trace_only' | 'lossy';

/** What a run recorded; full is plain so that the rest stands out. */
export function CoverageTag({ coverage }: { readonly coverage: CoverageName }) {
  const { t } = useWords();
  const text = t(`coverage.${coverage}`);
  if (coverage === 'full') {
    return (
      <Tag look="z" sign="check">
        {text}
      </Tag>
    );
  }
  return coverage === 'lossy' ? (
    <Tag look="error" sign="error">
      {text}
    </Tag>
  ) : (
    <Tag look="made">{text}</Tag>
  );
}

const LETTERS = {
  llm: { letter: 'M', look: 'm' },
  tool: { letter: 'T', look: '' },
  agent: { letter: 'A', look: 'a' },
  retrieval: { letter: 'R', look: '' },
  clock: { letter: 'C', look: '' },
  random: { letter: 'N', look: '' },
  id: { letter: 'I', look: '' },
  env: { letter: 'E', look: '' },
  state: { letter: 'S', look: '' },
  check: { letter: 'V', look: '' },
  other: { letter: 'O', look: '' },
} as const;

export type KindName = keyof typeof LETTERS;

/** The kind of a step: one letter, its name for readers of the screen. */
export function Kind({ kind }: { readonly kind: KindName }) {
  const { t } = useWords();
  const { letter, look } = LETTERS[kind];
  return (
    <span className={`k ${look}`} role="img" aria-label={t(`kind.${kind}`)} title={t(`kind.${kind}`)}>
      {letter}
    </span>
  );
}

interface BadgeProps {
  readonly bad?: boolean;
  readonly sign?: Sign;
  readonly children: ReactNode;
}

/** What was checked of a run: neutral when in order, red when not. */
export function Badge({ bad = false, sign, children }: BadgeProps) {
  return (
    <span className={bad ? 'badge bad' : 'badge'}>
      {sign && <Icon sign={sign} />}
      {children}
    </span>
  );
}
