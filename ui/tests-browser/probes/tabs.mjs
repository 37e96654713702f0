// tabs.mjs: many tabs of one browser over one server, which allows each origin six connections.
import assert from 'node:assert/strict';
import { holds, openPage } from '../harness.mjs';

const TABS = 8;

export const tabs = [
  {
    name: 'eight tabs answer, over one event stream',
    async run({ main, browser }) {
      const { origin } = await main();
      const { page, context } = await openPage(browser, origin);
      const pages = [page];
      while (pages.length < TABS) pages.push(await context.newPage());
      const streams = new Map(pages.map((one) => [one, 0]));
      const all = () => [...streams.values()].reduce((sum, count) => sum + count, 0);
      for (const one of pages) {
        one.on('request', (request) => {
          if (new URL(request.url()).pathname.endsWith('/events')) streams.set(one, streams.get(one) + 1);
        });
      }
      // All at once: each needs connections while the others are open.
      await Promise.all(pages.map((one) => one.goto(origin)));
      await Promise.all(pages.map((one) => one.getByTestId('run-row').first().waitFor()));
      assert.equal(all(), 1, 'streams of all tabs');
      // The tab that leads closes, and another one takes over.
      const last = pages.pop();
      for (const one of pages) await one.close();
      await holds(() => assert.equal(streams.get(last), 1, 'streams of the tab that is left'));
    },
  },
];
