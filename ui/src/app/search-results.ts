// search-results.ts: the entries of the search field, and the action of each entry.
import { effect } from '@preact/signals';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { toProblem } from '../api/client.ts';
import { fetchNames, type NamesAnswer } from '../api/events.ts';
import { isAbort } from '../api/gate.ts';
import { fetchSearch, fetchSteps, fetchTracks } from '../api/server.ts';
import { TOOLS } from '../model/generated.ts';
import type { RunDetail, Step } from '../model/run.ts';
import { type SearchEntry, type SearchTarget, searchEntries } from '../model/search-list.ts';
import { type Track, trackPaths } from '../model/track.ts';
import { nameView, openEvent, stepView } from '../pages/shared/links.tsx';
import { parseQuery } from '../pages/timeline/search.ts';
import { announce, paletteSources, run as runCommand, searchStatus } from '../state/commands.ts';
import { runList } from '../state/lists.ts';
import { goHome, goTo, type Store } from '../state/store.ts';

const TYPING_MS = 120;
const NAMES = 12;
/** Maximum wait for a page to open. */
const OPEN_MS = 10_000;

const NO_NAMES: NamesAnswer = { total: 0, names: 0, rows: [] };

interface RunFacts {
  readonly tracks: readonly Track[];
  readonly steps: readonly Step[];
}

const NO_FACTS: RunFacts = { tracks: [], steps: [] };

/** Fetches tracks and steps of the run when the user starts typing. */
function useFacts(run: RunDetail | undefined, wanted: boolean): RunFacts {
  const [facts, setFacts] = useState<RunFacts>(NO_FACTS);
  const key = wanted ? run?.contentHash : undefined;
  useEffect(() => {
    if (run === undefined || key === undefined) return;
    let gone = false;
    void Promise.all([
      fetchTracks(run.id, run.contentHash).catch((): readonly Track[] => []),
      fetchSteps(run.id, run.contentHash).catch((): readonly Step[] => []),
    ]).then(([tracks, steps]) => {
      if (!gone) setFacts({ tracks, steps });
    });
    return () => {
      gone = true;
    };
  }, [key]);
  return facts;
}

/** Fetches matching names of events after a pause in typing; returns the previous names until then. */
function useNames(run: RunDetail | undefined, text: string): NamesAnswer & { readonly isPending: boolean } {
  const [found, setFound] = useState<{ readonly text: string; readonly answer: NamesAnswer }>({
    text: '',
    answer: NO_NAMES,
  });
  useEffect(() => {
    const parsed = parseQuery(text);
    if (run === undefined || parsed === undefined) return;
    const abort = new AbortController();
    const timer = setTimeout(() => {
      fetchNames(run.id, { ...parsed, v: run.contentHash, limit: NAMES }, { signal: abort.signal }).then(
        (answer) => setFound({ text, answer }),
        (error: unknown) => {
          if (!isAbort(error)) setFound({ text, answer: NO_NAMES });
        },
      );
    }, TYPING_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [run?.contentHash, text]);
  if (text.trim() === '' || run === undefined) return { ...NO_NAMES, isPending: false };
  return { ...found.answer, isPending: found.text !== text };
}

export interface SearchResults {
  readonly entries: readonly SearchEntry[];
  /** Some responses are pending. */
  readonly isPending: boolean;
}

export function useSearchResults(
  run: RunDetail | undefined,
  text: string,
  isOpen: boolean,
  onTimeline: boolean,
): SearchResults {
  const facts = useFacts(run, isOpen);
  const { rows, names, isPending } = useNames(isOpen ? run : undefined, text);
  const paths = useMemo(() => trackPaths(facts.tracks), [facts]);
  const { byTrack, total } = searchStatus.value;
  const entries = isOpen
    ? searchEntries({
        text,
        tools: run === undefined ? [] : TOOLS,
        runs: runList.value.runs,
        steps: facts.steps,
        tracks: facts.tracks,
        paths,
        names: rows,
        nameCount: names,
        byTrack: onTimeline && (total ?? 0) > 0 ? byTrack : [],
      })
    : [];
  return { entries, isPending };
}

/** Shows a track; opens the timeline first if necessary. */
function openTrack(store: Store, run: RunDetail, key: string): void {
  const place = store.place.peek();
  if (place.kind !== 'tool' || place.tool !== 'timeline') goTo(store, { kind: 'tool', run: run.id, tool: 'timeline' });
  let timer: ReturnType<typeof setTimeout> | undefined;
  let isDone = false;
  const stop = effect(() => {
    const entries = paletteSources.value.flatMap((source) => source());
    const entry = entries.find(({ id }) => id === key);
    if (entry === undefined || isDone) return;
    isDone = true;
    requestAnimationFrame(() => {
      clearTimeout(timer);
      stop();
      entry.run();
    });
  });
  timer = setTimeout(stop, OPEN_MS);
}

/** Opens the first match on a track. */
async function openMatch(store: Store, run: RunDetail, text: string, track: number): Promise<void> {
  const parsed = parseQuery(text);
  if (parsed === undefined) return;
  try {
    const { hits } = await fetchSearch(run.id, { ...parsed, v: run.contentHash, limit: 1, tracks: [track] });
    const [hit] = hits;
    if (hit === undefined) announce('No matches on this track');
    else await openEvent(store, run, hit.id);
  } catch (error) {
    announce(toProblem(error).detail);
  }
}

export function openEntry(store: Store, run: RunDetail | undefined, text: string, target: SearchTarget): void {
  if (target.kind === 'run') {
    goHome(store, target.run);
    return;
  }
  if (run === undefined) return;
  const timeline = { kind: 'tool', run: run.id, tool: 'timeline' } as const;
  switch (target.kind) {
    case 'page':
      goTo(store, { ...timeline, tool: target.tool });
      break;
    case 'step':
      goTo(store, timeline, stepView(target.step));
      break;
    case 'track':
      openTrack(store, run, target.key);
      break;
    case 'matches':
      void openMatch(store, run, text, target.track);
      break;
    case 'name': {
      const place = store.place.peek();
      const isThere = place.kind === 'tool' && place.tool === 'timeline';
      const { query, match } = nameView(target.name);
      if (isThere) {
        store.view.match.value = match;
        store.view.query.value = query ?? '';
        runCommand('search-next');
      } else {
        store.view.query.value = query ?? '';
        // For the whole run this is the first match. For a range of steps the timeline determines the match.
        store.view.match.value = store.view.steps.peek() === undefined ? 0 : match;
        void openEvent(store, run, target.first);
      }
    }
  }
}
