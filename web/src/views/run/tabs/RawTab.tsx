import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { getText, path } from '../../../api/client';
import { indentJson } from '../../../base/json';
import { useWords } from '../../../base/words';
import { Seg } from '../../../widgets/controls';
import { JsonView } from '../../../widgets/JsonView';
import { Failure, Loading } from '../../../widgets/states';
import { Copy } from '../../../widgets/text';
import type { PanelProps } from '../Inspector';

type Part = 'input' | 'output' | 'error';

/** What was sent and what came back, as it is stored: every digit of every number. */
export default function RawTab({ run, detail }: PanelProps) {
  const { t } = useWords();
  const failed = !['ok', 'open'].includes(detail.status);
  const [part, setPart] = useState<Part>(failed ? 'error' : 'output');
  const target = path`/api/runs/${run.id}/steps/${detail.idx}/raw/${part}`;
  const found = useQuery({
    queryKey: ['run', run.id, 'step', detail.idx, 'raw', part],
    queryFn: async ({ signal }) => indentJson(await getText(target, signal)),
  });
  return (
    <section className="panel raw">
      <div className="row">
        <Seg<Part>
          label={t('tab.raw')}
          value={part}
          choices={(['input', failed ? 'error' : 'output'] as const).map(value => ({
            value,
            label: t(`raw.${value}`),
          }))}
          onChoose={setPart}
        />
        <span className="grow" />
        {found.data && <Copy text={found.data} />}
        <a className="btn s q" href={`${target}?download=1`} download>
          {t('raw.download')}
        </a>
      </div>
      {found.isError && <Failure error={found.error} again={() => void found.refetch()} />}
      {found.isPending && <Loading what={t('tab.raw')} rows={10} />}
      {found.data !== undefined && <JsonView text={found.data} label={t(`raw.${part}`)} />}
      {found.data !== undefined && <p className="note">{t('raw.size', { n: found.data.length })}</p>}
    </section>
  );
}
