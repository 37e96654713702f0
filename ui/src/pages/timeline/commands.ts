// commands.ts: commands of the timeline for keys and the palette.
import { exactTime } from '../../base/format.ts';
import { lengthOf } from '../../model/viewport.ts';
import { announce, type Command, type PaletteEntry } from '../../state/commands.ts';
import { toggleKey } from '../../state/store.ts';
import type { Direction } from '../../timeline/motion.ts';
import type { TimelineRow } from '../../timeline/rows.ts';
import { copyText } from '../../widgets/download.ts';
import { eventJson } from './details.tsx';
import { toggleDrawer } from './drawer-state.ts';
import {
  addNote,
  currentStep,
  focusSelection,
  followFlow,
  goStep,
  limitToStep,
  type Session,
  selectionToArea,
  selectNeighbour,
} from './session.ts';
import { foldLane, scrollToLane } from './tree.tsx';

export function timelineCommands(session: Session): readonly Command[] {
  const { engine, store, layout, focusedLane } = session;
  const held = (id: string, title: string, direction: Direction): Command => ({
    id,
    title,
    run: (phase) => {
      if (phase === 'up') engine.release(direction);
      else engine.press(direction);
    },
  });
  const on = (id: string, title: string | undefined, action: () => void): Command => ({
    id,
    title,
    run: (phase) => {
      if (phase === 'down') action();
    },
  });
  const lanes = (): readonly TimelineRow[] => [...layout.peek().pinned, ...layout.peek().lanes];
  const withLane = (action: (lane: TimelineRow) => void) => () => {
    const all = lanes();
    const lane = all.find((item) => item.key === focusedLane.peek()) ?? all[0];
    if (lane !== undefined) action(lane);
  };
  const moveTrack = (by: 1 | -1) => {
    const all = lanes();
    const at = all.findIndex((lane) => lane.key === focusedLane.peek());
    const next = all[Math.max(0, Math.min(all.length - 1, at + by))];
    if (next === undefined) return;
    focusedLane.value = next.key;
    scrollToLane(session, next);
    announce(`Track ${next.name}`);
  };
  const page = (share: number) => {
    const range = engine.target;
    const by = lengthOf(range) * share;
    engine.show({ startNs: range.startNs + by, endNs: range.endNs + by });
  };
  const search = async (step: 1 | -1) => {
    const hit = await session.search.go(step);
    if (hit !== undefined) session.select(hit, true);
    else if (store.view.query.peek() !== '') announce('No matches');
  };
  return [
    held('zoom-in', 'Zoom in', 'in'),
    held('zoom-out', 'Zoom out', 'out'),
    held('pan-left', 'Pan left', 'left'),
    held('pan-right', 'Pan right', 'right'),
    on('page-left', 'Pan left by a window', () => page(-1)),
    on('page-right', 'Pan right by a window', () => page(1)),
    on('track-previous', undefined, () => moveTrack(-1)),
    on('track-next', undefined, () => moveTrack(1)),
    on('event-previous', 'Previous event on the track', () => void selectNeighbour(session, 'prev')),
    on('event-next', 'Next event on the track', () => void selectNeighbour(session, 'next')),
    on('flow-back', 'Follow link back', () => void followFlow(session, 'back')),
    on('flow-forward', 'Follow link forward', () => void followFlow(session, 'forward')),
    on('focus-selection', 'Centre the selection', () => focusSelection(session)),
    on('fit', 'Fit the whole run', () => engine.show(engine.fit)),
    on('selection-to-area', 'Turn the selection into an area', () => selectionToArea(session)),
    on('mark', 'Mark the selection', () => void addNote(session, '')),
    on('note', 'Add a note', () => {
      store.view.tab.value = 'notes';
      requestAnimationFrame(() => document.getElementById('ss-note-text')?.focus());
    }),
    on(
      'pin',
      'Pin or unpin the focused track',
      withLane((lane) => toggleKey(store.view.pins, lane.key)),
    ),
    on(
      'hide',
      'Hide the focused track',
      withLane((lane) => {
        toggleKey(store.view.hides, lane.key);
        announce(`${lane.name} is hidden`);
      }),
    ),
    on(
      'collapse',
      'Collapse or expand the focused track',
      withLane((lane) => foldLane(session, lane, !lane.folded)),
    ),
    on('critical-path', 'Show or hide the critical path', () => {
      const { criticalPath } = store.view;
      criticalPath.value = !criticalPath.peek();
      announce(criticalPath.peek() ? 'Critical path of the step in view' : 'Critical path hidden');
    }),
    on('show-all-tracks', 'Show all tracks', () => {
      store.view.hides.value = [];
      store.view.only.value = [];
      store.view.filter.value = '';
      store.view.quiet.value = true;
    }),
    on('step-previous', 'Previous step', () => goStep(session, -1)),
    on('step-next', 'Next step', () => goStep(session, 1)),
    on('limit-to-step', 'Limit everything to the current step', () => {
      const step = currentStep(session, engine.target);
      if (step === undefined) announce('No steps were recorded');
      else limitToStep(session, step);
    }),
    on('go-start', 'Go to the start of the run', () => engine.show({ startNs: 0, endNs: lengthOf(engine.target) })),
    on('go-end', 'Go to the end of the run', () =>
      engine.show({ startNs: engine.bounds.endNs - lengthOf(engine.target), endNs: engine.bounds.endNs }),
    ),
    on('one-mode', undefined, () =>
      announce('One mode does it all: drag selects, Ctrl+wheel or W/S zooms, A/D pans, click shows details'),
    ),
    on('copy', 'Copy the selected event as JSON', () => {
      const picked = getSelection()?.toString() ?? '';
      const event = session.detail.state.peek().value;
      if (picked !== '') void copyText(picked);
      else if (event !== undefined)
        void copyText(eventJson(event)).then(() => announce(`Copied ${event.name} at ${exactTime(event.startNs)}`));
    }),
    on('search-next', undefined, () => void search(1)),
    on('search-previous', undefined, () => void search(-1)),
    on('clear-selection', undefined, () => session.clearSelection()),
    on('drawer', 'Open or close the details', () => toggleDrawer(store)),
  ];
}

/** Returns the tracks for the palette and for "go to track". */
export function trackEntries(session: Session): readonly PaletteEntry[] {
  return session.tracks
    .filter((track) => track.kind !== 'group')
    .map((track) => ({
      id: track.key,
      group: 'Tracks',
      title: track.name,
      detail: session.paths.get(track.id),
      run: () => {
        session.revealTrack(track.id, 0);
        session.focusedLane.value = track.key;
      },
    }));
}
