import type { Reader } from '../base/reader';
import { useWords, type WordKey } from '../base/words';
import { Dialog } from '../widgets/controls';
import { Kbd } from '../widgets/text';

const KEYS: readonly (readonly [keys: readonly string[], does: WordKey])[] = [
  [['j', 'k'], 'key.move'],
  [['Enter'], 'key.open'],
  [['Escape'], 'key.back'],
  [['x'], 'key.select'],
  [['c'], 'key.compare'],
  [['f'], 'key.fork'],
  [['r'], 'key.replay'],
  [['n', 'p'], 'key.difference'],
  [['[', ']'], 'key.siblings'],
  [['1', '6'], 'key.tabs'],
  [['+', '-', '0'], 'key.zoom'],
  [['z'], 'key.fold'],
  [['s'], 'key.swap'],
  [['o'], 'key.openA'],
  [['d'], 'key.only'],
  [['/'], 'key.find'],
  [['Ctrl', 'Enter'], 'key.start'],
  [['t'], 'key.tools'],
  [['Alt', 'ArrowDown'], 'key.nextChange'],
  [['Alt', 'ArrowUp'], 'key.previousChange'],
  [['Ctrl', 'K'], 'key.commands'],
  [['?'], 'key.all'],
];

/** Every key, and the switch for those that are single letters. */
export function AllKeys({ reader, onClose }: { readonly reader: Reader; readonly onClose: () => void }) {
  const { t } = useWords();
  return (
    <Dialog title={t('app.keys')} onClose={onClose}>
      <dl className="keys">
        {KEYS.map(([keys, does]) => (
          <div key={does}>
            <dt>
              <Kbd keys={keys} />
            </dt>
            <dd>{t(does)}</dd>
          </div>
        ))}
      </dl>
      <label className="row">
        <input
          type="checkbox"
          checked={reader.singleKeys}
          onChange={event => reader.chooseSingleKeys(event.target.checked)}
        />
        {t('app.singleKeys')}
      </label>
    </Dialog>
  );
}
