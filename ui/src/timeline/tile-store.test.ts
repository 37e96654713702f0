import { describe, expect, it } from 'vitest';
import { abortError } from '../api/gate.ts';
import { createTileStore } from './tile-store.ts';
import { slotRange } from './tiles.ts';

interface Fake {
  readonly bytes: number;
  readonly text: string;
}

function bench() {
  const asked: {
    readonly text: string;
    readonly answer: () => Promise<void>;
    readonly fail: () => Promise<void>;
    readonly signal: AbortSignal;
  }[] = [];
  let changes = 0;
  const problems: unknown[] = [];
  const store = createTileStore<Fake>(
    (tracks, range, _urgency, signal) =>
      new Promise((resolve, reject) => {
        signal.addEventListener('abort', () => reject(abortError()));
        const settle = async (action: () => void) => {
          action();
          await new Promise((done) => setTimeout(done, 0));
        };
        const text = `${range.startNs}-${range.endNs}:${tracks.join(',')}`;
        asked.push({
          text,
          signal,
          answer: () =>
            settle(() =>
              resolve(new Map(tracks.map((track) => [track, { bytes: 10, text: `${track}@${range.startNs}` }]))),
            ),
          fail: () => settle(() => reject(new Error('no'))),
        });
      }),
    10_000,
    (problem) => {
      changes += 1;
      if (problem !== undefined) problems.push(problem);
    },
  );
  return { store, asked, problems, changes: () => changes };
}
const A = { level: 0, index: 0 };
const B = { level: 0, index: 1 };

describe('tile store', () => {
  it('asks once for all tracks of a tile, and for neighbours when the visible ones are there', async () => {
    const { store, asked } = bench();
    expect(store.want([A], [B], [1, 2])).toBe(false);
    store.want([A], [B], [1, 2]);
    expect(asked.map((item) => item.text)).toEqual(['0-512:1,2']);
    await asked[0]?.answer();
    expect(store.want([A], [B], [1, 2])).toBe(true);
    expect(asked.map((item) => item.text)).toEqual(['0-512:1,2', '512-1024:1,2']);
    store.want([A], [B], [1, 2, 3]);
    expect(asked[2]?.text).toBe('0-512:3');
  });

  it('cancels what is no longer wanted', () => {
    const { store, asked } = bench();
    store.want([A], [], [1]);
    store.want([{ level: 0, index: 9 }], [], [1]);
    expect(asked[0]?.signal.aborted).toBe(true);
    expect(asked[1]?.signal.aborted).toBe(false);
  });

  it('lets coarser tiles stand in for missing ones', async () => {
    const { store, asked } = bench();
    store.want([{ level: 1, index: 0 }], [], [1]);
    await asked[0]?.answer();
    const segments = store.segments([A, B], 1);
    expect(segments).toEqual([{ tile: { bytes: 10, text: '1@0' }, startNs: 0, endNs: 1024, exact: false }]);
    store.want([A], [], [1]);
    await asked[1]?.answer();
    expect(store.segments([A, B], 1).map((part) => [part.startNs, part.exact])).toEqual([
      [0, true],
      [512, false],
    ]);
  });

  it('lets finer tiles stand in after zooming out, when all of them are there', async () => {
    const { store, asked } = bench();
    store.want([A, B], [], [1]);
    await asked[0]?.answer();
    const coarse = { level: 1, index: 0 };
    expect(store.segments([coarse], 1)).toEqual([{ tile: undefined, ...slotRange(coarse), exact: false }]);
    await asked[1]?.answer();
    expect(store.segments([coarse], 1).map((part) => part.tile?.text)).toEqual(['1@0', '1@512']);
  });

  it('reports a failure and does not ask again at once', async () => {
    const { store, asked, problems } = bench();
    store.want([A], [], [1]);
    await asked[0]?.fail();
    expect(problems.length).toBe(1);
    store.want([A], [], [1]);
    expect(asked.length).toBe(1);
  });
});
