// resource.ts: caches server data by key. The latest key wins; the previous value stays visible while the next one
// loads.
import { type ReadonlySignal, signal } from '@preact/signals';
import { Problem, toProblem } from './client.ts';
import { isAbort } from './gate.ts';

export interface Loaded<T> {
  readonly key: string | undefined;
  /** May belong to the previous key while `loading`. */
  readonly value: T | undefined;
  readonly problem: Problem | undefined;
  readonly loading: boolean;
}

export interface Resource<T> {
  readonly state: ReadonlySignal<Loaded<T>>;
  /** Starts the request unless this key is loaded or loading. */
  load(key: string, fetcher: (signal: AbortSignal) => Promise<T>): void;
  /** Cancels the pending request; the result is a problem of code `cancelled`. */
  cancel(): void;
  /** Repeats the request with the same fetcher. */
  reload(): void;
  clear(): void;
}

const cancelled = (): Problem =>
  new Problem('Cancelled', 'You stopped it before the answer was there.', undefined, undefined, 0, 'cancelled');

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
    cancel() {
      const { key, value, loading } = state.peek();
      if (!loading) return;
      inFlight?.abort();
      inFlight = undefined;
      state.value = { key, value, problem: cancelled(), loading: false };
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
