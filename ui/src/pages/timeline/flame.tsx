// flame.tsx: time by stack in the selected area or in the window, as nested bars.
import type { ReadonlySignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { type CallsAnswer, callsPath, fetchCalls } from '../../api/calls.ts';
import { createResource } from '../../api/resource.ts';
import { formatDuration } from '../../base/format.ts';
import type { Theme } from '../../base/theme.ts';
import { goTo } from '../../state/store.ts';
import { FlameChart } from '../../widgets/flame-chart.tsx';
import { Loading, ProblemState } from '../../widgets/states.tsx';
import { useDrawerArea } from './drawer-area.ts';
import { DrawerEmpty } from './drawer-parts.tsx';
import type { Session } from './session.ts';

const MOST_NODES = 50_000;

export function FlameTab({
  session,
  theme,
}: {
  readonly session: Session;
  readonly theme: ReadonlySignal<Theme>;
}): JSX.Element {
  const { run, store, selected } = session;
  const area = useDrawerArea(session);
  const resource = useMemo(() => createResource<CallsAnswer>(), []);
  const [zoom, setZoom] = useState<number | undefined>(undefined);
  const [onlyTrack, setOnlyTrack] = useState(true);
  // An area defines the tracks; without one, a selected event does.
  const own = area.isArea ? undefined : selected.value?.track;
  const ask = {
    by: 'stack',
    range: area.range,
    tracks: own !== undefined && onlyTrack ? [own] : area.tracks,
    limit: MOST_NODES,
    v: run.contentHash,
  } as const;
  const key = callsPath(run.id, ask);
  useEffect(() => {
    setZoom(undefined);
    resource.load(key, (signal) => fetchCalls(run.id, ask, { signal }));
  }, [key]);
  const { value, problem, loading } = resource.state.value;
  if (problem !== undefined) return <ProblemState problem={problem} />;
  if (value === undefined) return <Loading what="Adding up stacks" />;
  const { tree } = value;
  if (tree.rows === 0) {
    return (
      <DrawerEmpty reason="no-match" title={`No slices ${area.where}.`}>
        {area.isArea ? 'Select another area or more tracks.' : 'Zoom out, or select another area.'}
      </DrawerEmpty>
    );
  }
  return (
    <div class={`ss-flame ${loading ? 'ss-dim' : ''}`} aria-busy={loading}>
      <div class="ss-table-tools">
        <span data-testid="flame-total" data-ns={tree.wholeNs}>
          {formatDuration(tree.wholeNs)} of stacks {area.where}
        </span>
        {own === undefined ? undefined : (
          <label class="ss-check">
            <input
              type="checkbox"
              checked={onlyTrack}
              onChange={(event) => setOnlyTrack(event.currentTarget.checked)}
            />{' '}
            only the selected event's track
          </label>
        )}
        {zoom === undefined ? undefined : (
          <button type="button" class="ss-chip" onClick={() => setZoom(undefined)}>
            Show all
          </button>
        )}
        <span class="ss-grow" />
        <button
          type="button"
          class="ss-button ss-small"
          onClick={() =>
            goTo(
              store,
              { kind: 'tool', run: run.id, tool: 'calls' },
              { area: { ...area.range, tracks: ask.tracks ?? [] }, by: 'stack', tab: 'flame' },
            )
          }
        >
          Open as call tree
        </button>
      </div>
      <FlameChart
        label={`Flame graph of the stacks ${area.where}`}
        testId="flame"
        tree={tree}
        theme={theme}
        zoom={zoom !== undefined && zoom < tree.rows ? zoom : undefined}
        onZoom={setZoom}
        colourOf={(row, now) => now.kinds[tree.kind[row] ?? 0] ?? now.muted}
      />
    </div>
  );
}
