import { defineConfig } from 'vitest/config';
import { DEFAULT_PORT } from './src/model/generated.ts';

/** Where `npm run dev` sends API requests: a running `stepscope view`, by default on its usual port. */
const apiTarget = process.env.STEPSCOPE_URL ?? `http://localhost:${DEFAULT_PORT}`;

export default defineConfig({
  // Files are named from where the page is, so that a proxy may serve the viewer below any path.
  base: './',
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
