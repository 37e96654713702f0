// page.tsx: the timeline of one opened run.
import { type ReadonlySignal, useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { type Problem, toProblem } from '../../api/client.ts';
import { fetchSteps, fetchTracks } from '../../api/server.ts';
import { formatDuration } from '../../base/format.ts';
import type { Theme } from '../../base/theme.ts';
import type { RunDetail, Step } from '../../model/run.ts';
import type { Track } from '../../model/track.ts';
import { addPaletteSource, register } from '../../state/commands.ts';
import { hintClosed, labelWidthPx } from '../../state/preferences.ts';
import type { Store } from '../../state/store.ts';
import { IconButton } from '../../widgets/icon.tsx';
import { EmptyState, Loading, ProblemState } from '../../widgets/states.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { timelineCommands, trackEntries } from './commands.ts';
import { Drawer } from './drawer.tsx';
import { Minimap, Ruler, StepLaneNames } from './head.tsx';
import { Legend } from './legend.tsx';
import { NoTimeline } from './no-timeline.tsx';
import { createSession, type Session } from './session.ts';
import { Stage } from './stage.tsx';
import { summaryOf } from './summary.ts';
import { Corner, Toolbar } from './toolbar.tsx';
import { TrackTree } from './tree.tsx';

export interface TimelineProps {
  readonly store: Store;
  readonly run: RunDetail;
  readonly theme: ReadonlySignal<Theme>;
}

export function TimelinePage({ store, run, theme }: TimelineProps): JSX.Element {
  const [session, setSession] = useState<Session | undefined>(undefined);
  const [problem, setProblem] = useState<Problem | undefined>(undefined);
  const [again, setAgain] = useState(0);
  useEffect(() => {
    let made: Session | undefined;
    const abort = new AbortController();
    setProblem(undefined);
    Promise.all([
      fetchTracks(run.id, run.contentHash, { signal: abort.signal }),
      fetchSteps(run.id, run.contentHash, { signal: abort.signal }).catch((): readonly Step[] => []),
    ]).then(
      ([tracks, steps]: [readonly Track[], readonly Step[]]) => {
        if (abort.signal.aborted) return;
        made = createSession(store, run, tracks, steps, theme);
        setSession(made);
      },
      (error: unknown) => {
        if (!abort.signal.aborted) setProblem(toProblem(error));
      },
    );
    return () => {
      abort.abort();
      made?.dispose();
      setSession(undefined);
    };
  }, [run.id, run.contentHash, again]);

  if (problem !== undefined) {
    return (
      <>
        <PageHead title="Timeline" summary="The tracks could not be read." />
        <ProblemState problem={problem}>
          <button type="button" class="ss-button" onClick={() => setAgain(again + 1)}>
            Try again
          </button>
        </ProblemState>
      </>
    );
  }
  if (session === undefined) {
    return (
      <>
        <PageHead title="Timeline" summary={`${formatDuration(run.durationNs)} recorded.`} />
        <Loading what="Reading tracks" />
      </>
    );
  }
  if (!session.tracks.some((track) => track.kind !== 'group')) {
    return <NoTimeline store={store} run={run} />;
  }
  return <TimelineView session={session} theme={theme} />;
}

function TimelineView({
  session,
  theme,
}: {
  readonly session: Session;
  readonly theme: ReadonlySignal<Theme>;
}): JSX.Element {
  const { store, engine, layout } = session;
  const summary = summaryOf(session);
  const [legend, setLegend] = useState(false);
  const closeLegend = useCallback(() => setLegend(false), []);
  const scroller = useRef<HTMLDivElement>(null);
  const grip = useRef<{ x: number; width: number } | undefined>(undefined);
  useEffect(() => {
    const stops = [register(timelineCommands(session)), addPaletteSource(() => trackEntries(session))];
    return () => {
      for (const stop of stops) stop();
    };
  }, [session]);
  useEffect(() => {
    session.scroller.element = scroller.current ?? undefined;
    return () => {
      session.scroller.element = undefined;
    };
  }, [session]);
  useSignalEffect(() => {
    // A shorter list changes the browser's scroll position without a timely event.
    void layout.value;
    queueMicrotask(() => {
      if (scroller.current !== null) engine.scrollTop.value = scroller.current.scrollTop;
    });
  });
  const { heightPx, pinnedPx, shown } = layout.value;
  return (
    <div class="ss-timeline-page">
      <header class="ss-timeline-head">
        <h1>Timeline</h1>
        <Toolbar session={session} isLegendOpen={legend} onLegend={() => setLegend(!legend)} />
      </header>
      {legend ? <Legend session={session} theme={theme.value} onClose={closeLegend} /> : undefined}
      {session.problem.value === undefined ? undefined : (
        <div class="ss-inline-alert" role="alert">
          {session.problem.value.title}: {session.problem.value.detail}
          <IconButton
            icon="close"
            label="Close message"
            onClick={() => {
              session.problem.value = undefined;
            }}
          />
        </div>
      )}
      <div class="ss-tracks" style={{ '--ss-label-width': `${labelWidthPx.value}px` }}>
        <div class="ss-tracks-head">
          <div class="ss-corner">
            <Corner session={session} />
            <StepLaneNames session={session} />
          </div>
          <div class="ss-head-canvases">
            <Minimap session={session} theme={theme} />
            <Ruler session={session} theme={theme} />
          </div>
        </div>
        <div
          class="ss-scroll"
          ref={scroller}
          onScroll={(event) => {
            engine.scrollTop.value = event.currentTarget.scrollTop;
          }}
        >
          <div class="ss-sizer" style={{ height: `${Math.max(heightPx + pinnedPx, 1)}px` }}>
            <TrackTree session={session} />
            <div class="ss-stage-holder">
              <Stage session={session} />
            </div>
          </div>
        </div>
        <div
          role="separator"
          aria-orientation="vertical"
          aria-label="Width of the track names"
          aria-valuenow={labelWidthPx.value}
          aria-valuemin={140}
          aria-valuemax={600}
          tabIndex={0}
          class="ss-label-grip"
          onKeyDown={(event) => {
            const by = event.key === 'ArrowRight' ? 16 : event.key === 'ArrowLeft' ? -16 : 0;
            if (by === 0) return;
            event.preventDefault();
            event.stopPropagation();
            labelWidthPx.value = Math.max(140, Math.min(600, labelWidthPx.peek() + by));
          }}
          onPointerDown={(event) => {
            event.currentTarget.setPointerCapture(event.pointerId);
            grip.current = { x: event.clientX, width: labelWidthPx.peek() };
          }}
          onPointerMove={(event) => {
            if (grip.current !== undefined)
              labelWidthPx.value = Math.max(140, Math.min(600, grip.current.width + event.clientX - grip.current.x));
          }}
          onPointerUp={() => {
            grip.current = undefined;
          }}
        />
        {shown === 0 ? (
          <div class="ss-over">
            <EmptyState
              reason="filtered-out"
              title="No track is left"
              why={
                store.view.filter.value === ''
                  ? 'All tracks are hidden or limited away.'
                  : `The filter “${store.view.filter.value}” matches no track.`
              }
            >
              <button
                type="button"
                class="ss-button"
                onClick={() => {
                  store.view.filter.value = '';
                  store.view.only.value = [];
                  store.view.hides.value = [];
                  store.view.hosts.value = [];
                  store.view.rank.value = undefined;
                  store.view.quiet.value = session.tracks.every((track) => track.hidden || track.kind === 'group');
                }}
              >
                Clear
              </button>
            </EmptyState>
          </div>
        ) : undefined}
      </div>
      <Drawer session={session} theme={theme}>
        <p class="ss-summary ss-ellipsis" data-testid="page-summary" title={summary}>
          {summary}
        </p>
        {hintClosed.value ? undefined : <Hint />}
      </Drawer>
    </div>
  );
}

/** One line with the main keys, until the user closes it permanently. */
function Hint(): JSX.Element {
  return (
    <div class="ss-hint">
      <span>
        <kbd>W</kbd>/<kbd>S</kbd> zoom · <kbd>A</kbd>/<kbd>D</kbd> pan · drag to select · <kbd>/</kbd> search ·{' '}
        <kbd>?</kbd> all keys
      </span>
      <IconButton
        icon="close"
        label="Close hint"
        onClick={() => {
          hintClosed.value = true;
        }}
      />
    </div>
  );
}
