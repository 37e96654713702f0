// tree.tsx: the track tree in the label column. Only visible rows are in the document.
import { useComputed } from '@preact/signals';
import type { JSX } from 'preact';
import { useRef } from 'preact/hooks';
import { formatValue, plural } from '../../base/format.ts';
import { moveTrack, setFolded, toggleKey } from '../../state/store.ts';
import { firstLaneAt, type TimelineRow } from '../../timeline/rows.ts';
import { Icon, IconButton } from '../../widgets/icon.tsx';
import type { Session } from './session.ts';

const OVERSCAN_PX = 400;

export function TrackTree({ session }: { readonly session: Session }): JSX.Element {
  const { engine, layout, focusedLane } = session;
  const root = useRef<HTMLDivElement>(null);
  const inView = useComputed<readonly TimelineRow[]>(() => {
    const { lanes } = layout.value;
    const from = engine.scrollTop.value - OVERSCAN_PX;
    const to = engine.scrollTop.value + engine.size.value.heightPx + OVERSCAN_PX;
    const out: TimelineRow[] = [];
    for (let at = firstLaneAt(lanes, from); at < lanes.length; at += 1) {
      const lane = lanes[at];
      if (lane === undefined || lane.topPx > to) break;
      out.push(lane);
    }
    return out;
  });
  const { pinned, pinnedPx, lanes } = layout.value;
  const total = pinned.length + lanes.length;
  const all = [...pinned, ...lanes];
  const current = all.some((lane) => lane.key === focusedLane.value) ? focusedLane.value : all[0]?.key;
  const indexOf = new Map(all.map((lane, at) => [lane.key, at]));

  const focusLane = (at: number) => {
    const lane = all[Math.max(0, Math.min(all.length - 1, at))];
    if (lane === undefined) return;
    focusedLane.value = lane.key;
    scrollToLane(session, lane);
    requestAnimationFrame(() =>
      root.current
        ?.querySelector<HTMLElement>(`[data-track="${CSS.escape(lane.key)}"]`)
        ?.focus({ preventScroll: true }),
    );
  };
  const onKeyDown = (event: KeyboardEvent, lane: TimelineRow) => {
    const at = indexOf.get(lane.key) ?? 0;
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step !== 0) focusLane(at + step);
    else if (event.key === 'ArrowRight' && lane.folded) foldLane(session, lane, false);
    else if (event.key === 'ArrowLeft' && !lane.folded) foldLane(session, lane, true);
    else if (event.key === 'Enter' && event.target === event.currentTarget) foldLane(session, lane, !lane.folded);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const row = (lane: TimelineRow) => (
    <LaneLabel
      key={`${lane.pinned ? 'pin' : ''}${lane.key}`}
      session={session}
      lane={lane}
      position={(indexOf.get(lane.key) ?? 0) + 1}
      total={total}
      current={lane.key === current}
      onKeyDown={onKeyDown}
    />
  );
  return (
    <div ref={root} class="ss-tree" role="tree" aria-label="Tracks">
      {pinned.length === 0 ? undefined : (
        <div class="ss-tree-pinned" role="presentation" style={{ height: `${pinnedPx}px` }}>
          {pinned.map(row)}
        </div>
      )}
      <div class="ss-tree-rest" role="presentation" style={{ top: `${pinnedPx}px` }}>
        {inView.value.map(row)}
      </div>
    </div>
  );
}

/** Secondary text next to the name: drawn by the style sheet, so that the row's accessible name is the track alone. */
const Aside = ({ text }: { readonly text: string }): JSX.Element => <small data-text={text} aria-hidden="true" />;

export function scrollToLane(session: Session, lane: TimelineRow): void {
  const element = session.scroller.element;
  if (element === undefined || lane.pinned) return;
  const room = element.clientHeight - session.layout.peek().pinnedPx;
  if (lane.topPx < element.scrollTop) element.scrollTop = lane.topPx;
  else if (lane.topPx + lane.heightPx > element.scrollTop + room)
    element.scrollTop = Math.min(lane.topPx, lane.topPx + lane.heightPx - room);
}

export function foldLane(session: Session, lane: TimelineRow, folded: boolean): void {
  setFolded(session.store, lane.key, folded, lane.foldedByDefault);
}

function LaneLabel(props: {
  readonly session: Session;
  readonly lane: TimelineRow;
  readonly position: number;
  readonly total: number;
  readonly current: boolean;
  readonly onKeyDown: (event: KeyboardEvent, lane: TimelineRow) => void;
}): JSX.Element {
  const { session, lane } = props;
  const { store, engine } = session;
  const { track, children } = lane.node;
  const expandable = lane.kind === 'group' || (lane.kind === 'slices' && lane.rows > 1);
  const scale = lane.kind === 'counter' && track !== undefined ? engine.shownScales.value.get(track.id) : undefined;
  const path = track === undefined ? lane.name : (session.paths.get(track.id) ?? lane.name);
  const title =
    lane.kind === 'group'
      ? `${path}, ${plural(lane.leaves, 'track')}`
      : [path, track?.recordedName, plural(track?.events ?? 0, 'event')].filter(Boolean).join(', ');
  return (
    <div
      role="treeitem"
      aria-label={lane.name}
      aria-level={lane.level}
      aria-posinset={props.position}
      aria-setsize={props.total}
      aria-selected={props.current}
      {...(expandable ? { 'aria-expanded': !lane.folded } : {})}
      tabIndex={props.current ? 0 : -1}
      class={`ss-lane ss-lane-${lane.kind} ${props.current ? 'ss-lane-current' : ''}`}
      data-testid="track-row"
      data-track={lane.key}
      data-pinned={lane.pinned}
      data-folded={lane.folded}
      style={{ top: `${lane.topPx}px`, height: `${lane.heightPx}px`, paddingLeft: `${4 + (lane.level - 1) * 12}px` }}
      title={title}
      onFocus={() => {
        session.focusedLane.value = lane.key;
      }}
      onKeyDown={(event) => props.onKeyDown(event, lane)}
      onDblClick={() => expandable && foldLane(session, lane, !lane.folded)}
    >
      {expandable ? (
        <button
          type="button"
          class="ss-fold"
          tabIndex={-1}
          aria-label={`${lane.folded ? 'Expand' : 'Collapse'} ${lane.name}`}
          onClick={() => foldLane(session, lane, !lane.folded)}
        >
          <Icon name={lane.folded ? 'chevronRight' : 'chevronDown'} />
        </button>
      ) : (
        <span class="ss-fold" />
      )}
      {lane.pinned ? (
        <span class="ss-pin-mark" aria-hidden="true">
          <Icon name="pin" />
        </span>
      ) : undefined}
      <span class="ss-lane-name ss-ellipsis">
        {lane.name}
        {lane.kind === 'group' && (lane.folded || children.length > 1) ? (
          <Aside text={plural(lane.leaves, 'track')} />
        ) : undefined}
        {track?.derived === true ? <Aside text="derived" /> : undefined}
      </span>
      {scale === undefined ? undefined : (
        <span class="ss-lane-scale" aria-hidden="true">
          <Aside text={formatValue(scale.max, track?.unit)} />
          <Aside text={formatValue((scale.max + scale.min) / 2, track?.unit)} />
          <Aside text={formatValue(scale.min, track?.unit)} />
        </span>
      )}
      {lane.kind === 'slices' && !lane.folded && lane.overlapFrom < lane.rows ? (
        <small
          class="ss-overlap"
          style={{ top: `${lane.padPx + lane.overlapFrom * lane.rowPx}px` }}
          title="These events overlap others of this track without nesting"
        >
          <Aside text="overlap" />
        </small>
      ) : undefined}
      <span class="ss-lane-actions">
        <IconButton
          icon="pin"
          tabIndex={-1}
          label={lane.pinned ? `Unpin ${lane.name}` : `Pin ${lane.name}`}
          onClick={() => toggleKey(store.view.pins, lane.key)}
        />
        <IconButton
          icon="hide"
          tabIndex={-1}
          label={`Hide ${lane.name}`}
          onClick={() => toggleKey(store.view.hides, lane.key)}
        />
        <IconButton
          icon="up"
          tabIndex={-1}
          label={`Move up ${lane.name}`}
          onClick={() => moveTrack(store.view.moves, lane.key, 'up')}
        />
        <IconButton
          icon="down"
          tabIndex={-1}
          label={`Move down ${lane.name}`}
          onClick={() => moveTrack(store.view.moves, lane.key, 'down')}
        />
        <IconButton
          icon="only"
          tabIndex={-1}
          label={`Only ${lane.name}`}
          onClick={() => {
            store.view.only.value = [lane.key];
          }}
        />
      </span>
    </div>
  );
}
