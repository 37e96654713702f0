import { defineConfig } from 'vitest/config';

/** Where `npm run dev` sends API requests: the mock server, or a real `stepscope` given by `STEPSCOPE_URL`. */
const apiTarget = process.env.STEPSCOPE_URL ?? 'http://127.0.0.1:8792';

export default defineConfig({
  base: '/',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    target: 'es2022',
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  server: { proxy: { '/api': { target: apiTarget, changeOrigin: true } } },
  test: {
    environment: 'happy-dom',
    include: ['src/**/*.test.{ts,tsx}'],
    // happy-dom would fetch the page's favicon; tests have no network.
    environmentOptions: { happyDOM: { settings: { disableJavaScriptFileLoading: true } } },
  },
});
