import { createHash } from 'node:crypto';
import react from '@vitejs/plugin-react';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';

const server = process.env['AGENT_LOUPE_SERVER'] ?? 'http://127.0.0.1:7340';

/**
 * The version of a build: a digest of the names of its files, which carry digests of what is in them. It stands in the page
 * and in `version.txt`, which the server tells of: a page that is older than the server sees that.
 */
function version(): Plugin {
  let content = '';
  return {
    name: 'page-version',
    apply: 'build',
    transformIndexHtml: {
      order: 'post',
      handler(_, { bundle }) {
        const names = Object.keys(bundle ?? {})
          .sort()
          .join('\n');
        content = createHash('sha256').update(names).digest('hex').slice(0, 12);
        return [{ tag: 'meta', attrs: { name: 'page-version', content }, injectTo: 'head' }];
      },
    },
    generateBundle: {
      order: 'post',
      handler() {
        this.emitFile({ type: 'asset', fileName: 'version.txt', source: `${content}\n` });
      },
    },
  };
}

export default defineConfig({
  plugins: [react(), version()],
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
