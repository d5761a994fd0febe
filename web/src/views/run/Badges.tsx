import { Link } from '@tanstack/react-router';
import type { RunDetail } from '../../api/types';
import { useWords } from '../../base/words';
import { standing } from '../../model/evidence';
import { VERDICTS } from '../../model/report';
import { Badge, Status, Tag } from '../../widgets/tags';
import { useEvidence } from './queries';

interface BadgesProps {
  readonly run: RunDetail;
  readonly onEvidence: () => void;
}

/** What was checked of a run, and what came of it. */
export function Badges({ run, onEvidence }: BadgesProps) {
  const { t } = useWords();
  const { replay } = run.badges;
  return (
    <>
      <Badge bad={run.status === 'error'}>
        <Status status={run.status}>
          <b>{t(`status.${run.status}`)}</b>
        </Status>
      </Badge>
      <Chain run={run} onEvidence={onEvidence} />
      <Replayed replay={replay} />
      <Badge bad={run.coverage === 'lossy'}>
        {t('run.coverage')} <b>{t(`coverage.${run.coverage}`)}</b>
      </Badge>
      {run.open_effects > 0 && (
        <Link to="/effects" search={{ run: run.id }}>
          <Badge bad sign="int">
            <b>{t('effects.badge', { n: run.open_effects })}</b>
          </Badge>
        </Link>
      )}
      <Belief run={run} />
    </>
  );
}

/** Whether the evidence is whole and how far it is signed; pressing it opens what is proven, and checks what nobody checked yet. */
function Chain({ run, onEvidence }: BadgesProps) {
  const { t } = useWords();
  const { verdict, checking, check } = useEvidence(run);
  const stands = standing(run, verdict, checking);
  const bad = stands === 'damaged' || stands === 'newer';
  const open = () => {
    onEvidence();
    if (stands === 'not_checked') check();
  };
  return (
    <button type="button" className="plainbtn row" title={t('evidence.title')} onClick={open}>
      <Badge bad={bad} sign="chain">
        {t('run.chain')} <b>{t(`evidence.${stands}`)}</b>
      </Badge>
      {verdict?.ok && (verdict.anchors || verdict.anchored) && (
        <Badge bad={verdict.anchor_problem !== null} sign="lock">
          {t('evidence.anchor')}{' '}
          <b>
            {verdict.anchor_sequence === null
              ? t('evidence.notAnchored')
              : t('evidence.anchored', { n: verdict.anchor_sequence })}
          </b>
        </Badge>
      )}
    </button>
  );
}

/** What the last replay came to; it leads to its report. */
function Replayed({ replay }: { readonly replay: RunDetail['badges']['replay'] }) {
  const { t } = useWords();
  const verdict = VERDICTS.find(one => one === replay?.['verdict']);
  const badge = (
    <Badge bad={verdict !== undefined && replay?.['passed'] !== true}>
      {t('run.replayBadge')} <b>{verdict ? t(`report.verdict.${verdict}`) : t('run.replay.none')}</b>
    </Badge>
  );
  const job = replay?.['job'];
  if (typeof job !== 'string') return badge;
  return (
    <Link to="/replays/$id" params={{ id: job }}>
      {badge}
    </Link>
  );
}

/** Whether what a fork says may be taken for real. */
function Belief({ run }: { readonly run: RunDetail }) {
  const { t } = useWords();
  if (run.label === null) return null;
  if (run.hypothetical_from === null) return <Tag sign="check">{t('run.faithful')}</Tag>;
  return (
    <Link to="/runs/$id" params={{ id: run.id }} search={{ step: run.hypothetical_from }}>
      <Tag look="hyp" sign="warn">
        {t('run.hypothetical', { step: run.hypothetical_from })}
      </Tag>
    </Link>
  );
}
