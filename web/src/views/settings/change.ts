import { useMutation, useQueryClient } from '@tanstack/react-query';
import { send } from '../../api/client';
import type { Settings, SettingsChange } from '../../api/types';

/** Writes a part of the settings into its file; what is shown afterwards is what the server then reads. */
export function useChange(settings: Settings) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (change: Omit<SettingsChange, 'version'>) =>
      send<Settings>('PUT', '/api/settings', { version: settings.version, ...change }),
    onSuccess: now => queries.setQueryData(['settings'], now),
  });
}
