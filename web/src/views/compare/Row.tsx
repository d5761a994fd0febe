import type { ComparedRow, ComparedSide } from '../../api/types';
import { useWords } from '../../base/words';
import { wordsApart } from '../../model/diff';
import { CutLine } from '../../widgets/controls';
import { Words } from '../../widgets/diff';
import { Kind, SourceTag, Tag } from '../../widgets/tags';
import { RunText } from '../../widgets/text';

interface RowProps {
  readonly row: ComparedRow;
  /** The step at which B was cut, if the cut line stands above this row. */
  readonly cut: number | null;
  readonly first: boolean;
  readonly current: boolean;
  readonly onPick: () => void;
}

/** What a note about prompt templates begins with. */
const TEMPLATE = 'template ';

const LOOKS: Readonly<Record<ComparedRow['status'], string>> = {
  same: 'same',
  input_differs: 'chg',
  output_differs: 'chg',
  error_one_side: 'chg',
  only_left: 'only',
  only_right: 'only',
};

/** A step of each side, and how they stand to each other. */
export function Row({ row, cut, first, current, onPick }: RowProps) {
  const { t } = useWords();
  const differs = row.status !== 'same';
  const missed = row.right?.source === 'miss' ? 'B' : row.left?.source === 'miss' ? 'A' : null;
  const template = row.notes.find(note => note.startsWith(TEMPLATE));
  const equal = row.notes.some(note => note !== template) ? t('compare.spelling') : t('compare.status.same');
  const said =
    row.status === 'same' ? equal : missed ? t('compare.missIn', { side: missed }) : t(`compare.status.${row.status}`);
  const look = missed && row.status !== 'same' ? 'ms' : LOOKS[row.status];
  return (
    <>
      {cut !== null && <CutLine step={cut}>{t('compare.cutKept')}</CutLine>}
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: j, k, n and p move through the rows */}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the row around it has the role */}
      <div className={`ab abrow ${look} ${first ? 'first' : ''} ${current ? 'cur' : ''}`} onClick={onPick}>
        <Side side={row.left} other={differs ? (row.right?.line ?? null) : null} look="lt" />
        <div role="cell" className="sp">
          {said}
          {template && (
            <div className="dim">
              <RunText>{t('compare.template', { change: template.slice(TEMPLATE.length) })}</RunText>
            </div>
          )}
        </div>
        <Side side={row.right} other={differs ? (row.left?.line ?? null) : null} look="rt" />
      </div>
    </>
  );
}

interface SideProps {
  readonly side: ComparedSide | null;
  /** The other side's line, where the two differ: what is not in it is marked. */
  readonly other: string | null;
  readonly look: 'lt' | 'rt';
}

function Side({ side, other, look }: SideProps) {
  const { t } = useWords();
  if (!side) return <div role="cell" className={`none ${look}`} />;
  const line = side.line;
  const apart = other === null ? null : look === 'lt' ? wordsApart(line, other) : wordsApart(other, line);
  return (
    <div role="cell" className={look}>
      <span className="no">{side.idx}</span>
      <Kind kind={side.kind} />
      <span className="ell grow">
        {side.kind === 'llm' && line ? null : (
          <b className="mono">
            <RunText>{side.name}</RunText>{' '}
          </b>
        )}
        <span className={side.kind === 'llm' ? '' : 'mono'}>
          {apart ? <Words words={apart} side={look === 'lt' ? 'left' : 'right'} whole /> : <RunText>{line}</RunText>}
        </span>
      </span>
      {side.effect === 'write' && side.source === 'live' && side.status === 'ok' && (
        <Tag>{t('compare.wroteForReal')}</Tag>
      )}
      {side.source !== 'live' || look === 'rt' ? <SourceTag source={side.source} /> : null}
    </div>
  );
}
