import { useWords } from '../../base/words';

/** What the bars of the time line mean. */
export function Legend({ fork }: { readonly fork: boolean }) {
  const { t } = useWords();
  return (
    <>
      <h2 className="h3">{t('run.legend')}</h2>
      <div className="leg">
        <div>
          <i className="sw ink" />
          {t(fork ? 'run.legend.new' : 'run.legend.model')}
        </div>
        <div>
          <i className="sw tool" />
          {t('run.legend.tool')}
        </div>
        <div>
          <i className="sw live" />
          {t(fork ? 'run.legend.live' : 'run.legend.wrote')}
        </div>
        {fork && (
          <>
            <div>
              <i className="sw cassette" />
              {t('run.legend.cassette')}
            </div>
            <div>
              <i className="sw miss" />
              {t('run.legend.miss')}
            </div>
            <div>
              <i className="sw hatch" />
              {t('run.legend.kept')}
            </div>
          </>
        )}
      </div>
    </>
  );
}
