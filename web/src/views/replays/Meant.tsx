import { jsonText } from '../../base/json';
import { useWords } from '../../base/words';
import type { Expected } from '../../model/expected';
import { quoted } from '../../model/jobs';
import { Dialog } from '../../widgets/controls';
import { Command, Copy } from '../../widgets/text';

interface MeantProps {
  readonly run: string;
  readonly entry: Expected;
  readonly onClose: () => void;
}

/** How a difference that is meant is named, so that a replay passes only if it appears. */
export function Meant({ run, entry, onClose }: MeantProps) {
  const { t } = useWords();
  const text = `[\n  ${jsonText(entry)}\n]\n`;
  return (
    <Dialog title={t('report.meantTitle')} onClose={onClose}>
      <p>{t('report.meantSay')}</p>
      <div className="row top">
        <pre className="code grow">{text}</pre>
        <Copy text={text} />
      </div>
      <p>{t('report.meantRun')}</p>
      <Command>{`agentloupe replay ${quoted(run)} --expect expected.json`}</Command>
    </Dialog>
  );
}
