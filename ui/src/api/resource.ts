// resource.ts: a keyed memo of server data. The latest key wins; what was there stays visible while the next loads.
import { type ReadonlySignal, signal } from '@preact/signals';
import { type Problem, toProblem } from './client.ts';
import { isAbort } from './gate.ts';

export interface Loaded<T> {
  readonly key: string | undefined;
  /** May belong to an older key while `loading`. */
  readonly value: T | undefined;
  readonly problem: Problem | undefined;
  readonly loading: boolean;
}

export interface Resource<T> {
  readonly state: ReadonlySignal<Loaded<T>>;
  /** Starts the request unless this key is loaded or on its way. */
  load(key: string, fetcher: (signal: AbortSignal) => Promise<T>): void;
  /** Asks again with the same fetcher. */
  reload(): void;
  clear(): void;
}

export function createResource<T>(): Resource<T> {
  const empty: Loaded<T> = { key: undefined, value: undefined, problem: undefined, loading: false };
  const state = signal<Loaded<T>>(empty);
  let inFlight: AbortController | undefined;
  let lastFetcher: ((signal: AbortSignal) => Promise<T>) | undefined;

  const start = (key: string, fetcher: (signal: AbortSignal) => Promise<T>) => {
    inFlight?.abort();
    const controller = new AbortController();
    inFlight = controller;
    lastFetcher = fetcher;
    const stale = state.peek().value;
    state.value = { key, value: stale, problem: undefined, loading: true };
    fetcher(controller.signal).then(
      (value) => {
        if (inFlight === controller) state.value = { key, value, problem: undefined, loading: false };
      },
      (error: unknown) => {
        if (inFlight !== controller || isAbort(error)) return;
        state.value = { key, value: state.peek().value, problem: toProblem(error), loading: false };
      },
    );
  };

  return {
    state,
    load(key, fetcher) {
      if (state.peek().key !== key) start(key, fetcher);
    },
    reload() {
      const { key } = state.peek();
      if (key !== undefined && lastFetcher !== undefined) start(key, lastFetcher);
    },
    clear() {
      inFlight?.abort();
      inFlight = undefined;
      state.value = empty;
    },
  };
}
