// flame.tsx: time by stack in the window or the selected area, as nested bars.

import type { ReadonlySignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { type Columns, column } from '../../api/columns.ts';
import { createResource } from '../../api/resource.ts';
import { fetchFlame } from '../../api/server.ts';
import { formatCount, formatDuration, formatShare } from '../../base/format.ts';
import type { Theme } from '../../base/theme.ts';
import { Loading, ProblemState } from '../../widgets/states.tsx';
import { DrawerEmpty } from './drawer-parts.tsx';
import type { Session } from './session.ts';

const ROW_PX = 20;
/** Narrower bars are left out; zoom into a parent to see them. */
const LEAST_SHARE = 0.002;
const MOST_BARS = 1500;

export function FlameTab({
  session,
  theme,
}: {
  readonly session: Session;
  readonly theme: ReadonlySignal<Theme>;
}): JSX.Element {
  const { engine, run, store, selected } = session;
  const resource = useMemo(() => createResource<Columns>(), []);
  const [root, setRoot] = useState<number | undefined>(undefined);
  const [onlyTrack, setOnlyTrack] = useState(true);
  const area = store.view.area.value;
  const range = area ?? store.view.range.value ?? engine.fit;
  const track = onlyTrack ? selected.value?.track : undefined;
  const key = JSON.stringify([run.contentHash, range.startNs, range.endNs, track]);
  useEffect(() => {
    const timer = setTimeout(() => {
      setRoot(undefined);
      resource.load(key, (signal) =>
        fetchFlame(run.id, { t0: range.startNs, t1: range.endNs, track, v: run.contentHash }, { signal }),
      );
    }, 150);
    return () => clearTimeout(timer);
  }, [key]);
  const { value, problem, loading } = resource.state.value;
  if (problem !== undefined) return <ProblemState problem={problem} />;
  if (value === undefined) return <Loading what="Adding up stacks" />;
  if (value.rows === 0) {
    return (
      <DrawerEmpty reason="no-match" title="No slices in this range.">
        Zoom out, or select another area.
      </DrawerEmpty>
    );
  }
  const name = column(value, 'name', Uint32Array);
  const depth = column(value, 'depth', Uint16Array);
  const x0 = column(value, 'x0', Float64Array);
  const x1 = column(value, 'x1', Float64Array);
  const self = column(value, 'self', Float64Array);
  const count = value.columns.get('count');
  const kind = value.columns.get('kind');
  let whole = 0;
  for (let row = 0; row < value.rows; row += 1) if (depth[row] === 0) whole = Math.max(whole, x1[row] ?? 0);
  const from = root === undefined ? 0 : (x0[root] ?? 0);
  const to = root === undefined ? whole : (x1[root] ?? whole);
  const base = root === undefined ? 0 : (depth[root] ?? 0);
  const bars: number[] = [];
  let deepest = 0;
  for (let row = 0; row < value.rows && bars.length < MOST_BARS; row += 1) {
    const inside = (x0[row] ?? 0) >= from && (x1[row] ?? 0) <= to && (depth[row] ?? 0) >= base;
    if (!inside || ((x1[row] ?? 0) - (x0[row] ?? 0)) / (to - from) < LEAST_SHARE) continue;
    bars.push(row);
    deepest = Math.max(deepest, (depth[row] ?? 0) - base);
  }
  return (
    <div class={`ss-flame ${loading ? 'ss-dim' : ''}`}>
      <div class="ss-table-tools">
        <span>
          {formatDuration(whole)} of stacks {area === undefined ? 'in view' : 'in the selected area'}
        </span>
        <label class="ss-check">
          <input type="checkbox" checked={onlyTrack} onChange={(event) => setOnlyTrack(event.currentTarget.checked)} />{' '}
          only the selected event's track
        </label>
        {root === undefined ? undefined : (
          <button type="button" class="ss-chip" onClick={() => setRoot(undefined)}>
            Show all
          </button>
        )}
      </div>
      <div class="ss-flame-scroll" tabIndex={0} role="group" aria-label="Flame graph, scrollable">
        <div style={{ height: `${(deepest + 1) * ROW_PX}px`, position: 'relative' }}>
          {bars.map((row) => {
            const ns = (x1[row] ?? 0) - (x0[row] ?? 0);
            const text = value.labels[name[row] ?? 0] ?? '';
            const title = `${value.strings[name[row] ?? 0] ?? ''}\n${formatDuration(ns)} (${formatShare(ns / whole)}), self ${formatDuration(self[row] ?? 0)}, ${formatCount(count?.[row] ?? 0)} times`;
            return (
              <button
                key={row}
                type="button"
                class="ss-flame-bar"
                title={title}
                style={{
                  left: `${(((x0[row] ?? 0) - from) / (to - from)) * 100}%`,
                  width: `${(ns / (to - from)) * 100}%`,
                  top: `${((depth[row] ?? 0) - base) * ROW_PX}px`,
                  background: theme.value.kinds[kind?.[row] ?? 0] ?? theme.value.muted,
                }}
                onClick={() => setRoot(row)}
              >
                {text}
              </button>
            );
          })}
        </div>
      </div>
    </div>
  );
}
