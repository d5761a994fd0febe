import { useQueryClient } from '@tanstack/react-query';
import { ApiError } from '../../api/client';
import type { Settings } from '../../api/types';
import { useWords } from '../../base/words';
import { Failure } from '../../widgets/states';

interface SaveProps {
  readonly settings: Settings;
  /** The file that a change is written to. */
  readonly file: string;
  readonly editing: boolean;
  /** Why what was typed cannot be saved. */
  readonly fault: string | null;
  readonly change: { readonly error: Error | null; readonly isError: boolean; readonly isPending: boolean };
  readonly onEdit: () => void;
  readonly onCancel: () => void;
  readonly onSave: () => void;
}

/** The buttons below a part that can be changed; where nothing can be, the reason. */
export function Save({ settings, file, editing, fault, change, onEdit, onCancel, onSave }: SaveProps) {
  const { t } = useWords();
  const queries = useQueryClient();
  if (settings.read_only !== null) return <p className="note">{settings.read_only}</p>;
  if (!editing) {
    return (
      <p className="row">
        <button type="button" className="btn s" onClick={onEdit}>
          {t('setup.edit')}
        </button>
        <span className="note">{t(file.endsWith('.json') ? 'setup.writtenToJson' : 'setup.writtenTo', { file })}</span>
      </p>
    );
  }
  const stale = change.error instanceof ApiError && change.error.reason === 'settings_changed';
  return (
    <>
      {fault && <p className="st error">{fault}</p>}
      {change.isError && (
        <Failure
          error={change.error}
          again={stale ? () => void queries.invalidateQueries({ queryKey: ['settings'] }) : undefined}
        />
      )}
      <p className="row">
        <button type="button" className="btn s p" disabled={fault !== null || change.isPending} onClick={onSave}>
          {t(change.isPending ? 'setup.saving' : 'setup.save', { file })}
        </button>
        <button type="button" className="btn s" onClick={onCancel}>
          {t('fork.cancel')}
        </button>
      </p>
    </>
  );
}
