import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { ApiError, send } from '../../api/client';
import type { components } from '../../api/schema';
import { plain } from '../../base/visible';
import { useWords } from '../../base/words';
import { Failure } from '../../widgets/states';

type Imports = components['schemas']['Imports'];

/** What became of one file. */
interface Imported {
  readonly path: string;
  readonly run_ids: readonly string[];
  readonly already_there: readonly string[];
  readonly partial: boolean;
  readonly quarantined_places: readonly string[];
  readonly error?: { readonly message: string };
}

function filesOf(found: Imports | undefined): readonly Imported[] {
  return (found?.items ?? []) as unknown as readonly Imported[];
}

function count(files: readonly Imported[], what: 'run_ids' | 'already_there'): number {
  return files.reduce((sum, file) => sum + file[what].length, 0);
}

/** Files that are being sent to the server, what came of it. */
export function useImporter() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (files: readonly File[]) => {
      const form = new FormData();
      for (const file of files) form.append('files', file);
      return send<Imports>('POST', '/api/import', form);
    },
    onSettled: () => queries.invalidateQueries({ queryKey: ['runs'] }),
  });
}

export type Importer = ReturnType<typeof useImporter>;

export function ImportButton({ importer }: { readonly importer: Importer }) {
  const { t } = useWords();
  const field = useRef<HTMLInputElement>(null);
  const files = filesOf(importer.data);
  const there = count(files, 'already_there');
  const partial = files.filter(file => file.partial);
  return (
    <>
      {partial.length > 0 && (
        <span className="st miss" role="status" title={partial.flatMap(file => file.quarantined_places).join('\n')}>
          {t('runs.partial', { n: partial.length, where: plain(partial[0]?.quarantined_places[0] ?? '') })}
        </span>
      )}
      <span className="note" role="status">
        {importer.isPending && t('runs.importing', { n: importer.variables.length })}
        {importer.isSuccess && t('runs.imported', { n: count(files, 'run_ids') - there })}
        {there > 0 && ` · ${t('runs.thereAlready', { n: there })}`}
      </span>
      <input
        ref={field}
        type="file"
        multiple
        hidden
        accept=".loupe,.jsonl,.json"
        onChange={event => {
          const files = [...(event.target.files ?? [])];
          event.target.value = '';
          if (files.length) importer.mutate(files);
        }}
      />
      <button type="button" className="btn q" disabled={importer.isPending} onClick={() => field.current?.click()}>
        {t('runs.import')}
      </button>
    </>
  );
}

/** Files may be dropped anywhere on the page. */
export function DropZone({ importer }: { readonly importer: Importer }) {
  const { t } = useWords();
  const [over, setOver] = useState(false);
  const { mutate } = importer;
  useEffect(() => {
    const holdsFiles = (event: DragEvent) => event.dataTransfer?.types.includes('Files') ?? false;
    const drag = (event: DragEvent) => {
      if (!holdsFiles(event)) return;
      event.preventDefault();
      setOver(true);
    };
    const leave = (event: DragEvent) => {
      if (event.relatedTarget === null) setOver(false);
    };
    const drop = (event: DragEvent) => {
      if (!holdsFiles(event)) return;
      event.preventDefault();
      setOver(false);
      mutate([...(event.dataTransfer?.files ?? [])]);
    };
    const kinds = [
      ['dragover', drag],
      ['dragleave', leave],
      ['drop', drop],
    ] as const;
    for (const [kind, does] of kinds) window.addEventListener(kind, does);
    return () => {
      for (const [kind, does] of kinds) window.removeEventListener(kind, does);
    };
  }, [mutate]);
  return (
    <>
      {importer.isError && <Refused error={importer.error} onClose={importer.reset} />}
      {filesOf(importer.data)
        .filter(file => file.error)
        .map(file => (
          <Refused
            key={file.path}
            error={new ApiError(400, 'import', `${plain(file.path)}: ${plain(file.error?.message ?? '')}`)}
            onClose={importer.reset}
          />
        ))}
      {over && <div className="drop">{t('runs.drop')}</div>}
    </>
  );
}

function Refused({ error, onClose }: { readonly error: unknown; readonly onClose: () => void }) {
  const { t } = useWords();
  return (
    <Failure error={error}>
      <button type="button" className="btn" onClick={onClose}>
        {t('app.close')}
      </button>
    </Failure>
  );
}
