import react from '@vitejs/plugin-react';
import { defineConfig } from 'vitest/config';

const server = process.env['AGENT_LOUPE_SERVER'] ?? 'http://127.0.0.1:7340';

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: '../src/agentloupe/server/page',
    emptyOutDir: true,
    target: 'es2023',
    // The policy of the server forbids data: addresses for anything but images.
    assetsInlineLimit: 0,
    reportCompressedSize: true,
  },
  server: { proxy: { '/api': server } },
  preview: { proxy: { '/api': server } },
  test: { environment: 'happy-dom', include: ['src/**/*.test.{ts,tsx}'], restoreMocks: true },
});
