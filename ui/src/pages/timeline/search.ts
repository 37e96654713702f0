// search.ts: search over the whole run: totals, matches, and the current match.
import { computed, effect, type ReadonlySignal, signal } from '@preact/signals';
import { toProblem } from '../../api/client.ts';
import { isAbort } from '../../api/gate.ts';
import { fetchSearch } from '../../api/server.ts';
import type { EventRef, NameMatch, SearchAnswer } from '../../model/event.ts';
import type { RunDetail } from '../../model/run.ts';
import type { TimeRange } from '../../model/viewport.ts';
import { NO_SEARCH, searchStatus } from '../../state/commands.ts';
import type { Store } from '../../state/store.ts';

const DEBOUNCE_MS = 90;
const PAGE = 200;
export const SEARCH_BINS = 400;

export interface ParsedQuery {
  readonly q: string;
  readonly mode: 'text' | 'exact' | 'regex';
}

/** Parses a query: `/…/` is a regular expression, `"…"` a full name, anything else a substring. Pure. */
export function parseQuery(text: string): ParsedQuery | undefined {
  const whole = /^"(.+)"$/.exec(text.trim());
  if (whole?.[1] !== undefined) return { q: whole[1], mode: 'exact' };
  const regex = /^\/(.+)\/$/.exec(text.trim());
  if (regex?.[1] !== undefined) return { q: regex[1], mode: 'regex' };
  return text === '' ? undefined : { q: text, mode: 'text' };
}

/** Returns a matcher with the server's rules, for dimming. */
export function matcherOf(text: string): NameMatch | undefined {
  const parsed = parseQuery(text);
  if (parsed === undefined) return undefined;
  if (parsed.mode === 'exact') return (name) => name === parsed.q;
  if (parsed.mode === 'text') {
    const lower = parsed.q.toLowerCase();
    return (name, label) => name.toLowerCase().includes(lower) || label.toLowerCase().includes(lower);
  }
  try {
    const insensitive = parsed.q.startsWith('(?i)');
    const expression = new RegExp(insensitive ? parsed.q.slice(4) : parsed.q, insensitive ? 'i' : '');
    return (name, label) => expression.test(name) || expression.test(label);
  } catch {
    return undefined;
  }
}

export interface Search {
  readonly answer: ReadonlySignal<SearchAnswer | undefined>;
  readonly matcher: ReadonlySignal<NameMatch | undefined>;
  /** Moves to another match; without a current match to the first one in or after the window. */
  go(step: 1 | -1): Promise<EventRef | undefined>;
  goTo(index: number): Promise<EventRef | undefined>;
  dispose(): void;
}

export function createSearch(
  store: Store,
  run: RunDetail,
  scope: ReadonlySignal<TimeRange | undefined>,
  shownStart: () => number | undefined,
): Search {
  const answer = signal<SearchAnswer | undefined>(undefined);
  const cached = new Map<number, EventRef>();
  let controller: AbortController | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let pending: Promise<void> = Promise.resolve();

  const ask = (
    parsed: ParsedQuery,
    more: { readonly offset?: number; readonly near?: number; readonly bins?: number },
    abort?: AbortSignal,
  ) => {
    const range = scope.peek();
    return fetchSearch(
      run.id,
      { ...parsed, v: run.contentHash, limit: PAGE, ...more, ...(range === undefined ? {} : { range }) },
      { urgency: 'now', signal: abort },
    );
  };
  const remember = (found: SearchAnswer) => {
    found.hits.forEach((hit, at) => {
      cached.set(found.first + at, hit);
    });
  };
  const publish = (busy: boolean, problem?: string) => {
    searchStatus.value = {
      total: answer.peek()?.total,
      index: store.view.match.peek() ?? -1,
      busy,
      problem,
      byTrack: answer.peek()?.byTrack ?? [],
    };
  };

  const start = (text: string) => {
    controller?.abort();
    clearTimeout(timer);
    cached.clear();
    const parsed = parseQuery(text);
    if (parsed === undefined) {
      answer.value = undefined;
      pending = Promise.resolve();
      publish(false);
      return;
    }
    publish(true);
    const abort = new AbortController();
    controller = abort;
    pending = new Promise((resolve) => {
      abort.signal.addEventListener('abort', () => resolve());
      timer = setTimeout(async () => {
        try {
          const found = await ask(parsed, { bins: SEARCH_BINS }, abort.signal);
          if (abort.signal.aborted) return;
          remember(found);
          answer.value = found;
          publish(false);
        } catch (error) {
          if (!isAbort(error) && !abort.signal.aborted) {
            answer.value = undefined;
            publish(false, toProblem(error).detail);
          }
        } finally {
          resolve();
        }
      }, DEBOUNCE_MS);
    });
  };

  const stop = effect(() => {
    void scope.value;
    start(store.view.query.value);
  });
  const stopIndex = effect(() => {
    void store.view.match.value;
    publish(searchStatus.peek().busy, searchStatus.peek().problem);
  });

  const goTo = async (index: number): Promise<EventRef | undefined> => {
    const parsed = parseQuery(store.view.query.peek());
    if (parsed === undefined) return undefined;
    if (!cached.has(index)) remember(await ask(parsed, { offset: Math.max(0, index - PAGE / 2) }));
    const hit = cached.get(index);
    if (hit !== undefined) store.view.match.value = index;
    return hit;
  };

  return {
    answer,
    matcher: computed(() => matcherOf(store.view.query.value)),
    goTo,
    async go(step) {
      await pending;
      const total = answer.peek()?.total ?? 0;
      const parsed = parseQuery(store.view.query.peek());
      if (total === 0 || parsed === undefined) return undefined;
      const index = store.view.match.peek();
      if (index !== undefined) return goTo((index + step + total) % total);
      const near = shownStart();
      if (near === undefined || step < 0) return goTo(step < 0 ? total - 1 : 0);
      const found = await ask(parsed, { near });
      remember(found);
      return goTo(found.first);
    },
    dispose() {
      stop();
      stopIndex();
      controller?.abort();
      clearTimeout(timer);
      searchStatus.value = NO_SEARCH;
    },
  };
}
