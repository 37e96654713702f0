// page.tsx: the timeline of one opened run.
import { type ReadonlySignal, useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Problem, toProblem } from '../../api/client.ts';
import { keptReport, OVERVIEW } from '../../api/reports.ts';
import { fetchSteps, fetchTracks } from '../../api/server.ts';
import { formatCount, formatDuration, plural } from '../../base/format.ts';
import type { Theme } from '../../base/theme.ts';
import type { RunDetail, Step } from '../../model/run.ts';
import { median } from '../../model/scale.ts';
import type { Track } from '../../model/track.ts';
import { addPaletteSource, register } from '../../state/commands.ts';
import { hintClosed, labelWidthPx } from '../../state/preferences.ts';
import type { Store } from '../../state/store.ts';
import { Icon, IconButton } from '../../widgets/icon.tsx';
import { EmptyState, Loading, ProblemState } from '../../widgets/states.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { timelineCommands, trackEntries } from './commands.ts';
import { Drawer } from './drawer.tsx';
import { Minimap, Ruler } from './head.tsx';
import { NoTimeline } from './no-timeline.tsx';
import { createSession, type Session } from './session.ts';
import { Stage } from './stage.tsx';
import { Toolbar } from './toolbar.tsx';
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
        <PageHead title="Timeline" summary={summaryOf(run)} />
        <Loading what="Reading tracks" />
      </>
    );
  }
  if (!session.tracks.some((track) => track.kind !== 'group')) {
    return <NoTimeline store={store} run={run} />;
  }
  return <TimelineView session={session} theme={theme} />;
}

function summaryOf(run: RunDetail): string {
  const parts = [
    `${formatDuration(run.durationNs)} recorded`,
    `${plural(run.slices, 'event')} on ${plural(run.tracks, 'track')}`,
  ];
  if (run.steps > 0) parts.push(plural(run.steps, 'step'));
  return `${parts.join(', ')}.`;
}

/** The overview's own sentence where it is known already: adding it up would keep the drawing waiting. */
function stepSentence(session: Session): string {
  const { run, steps } = session;
  if (steps.length === 0) return summaryOf(run);
  const told = keptReport(run.id, run.contentHash, OVERVIEW)?.sentence ?? '';
  if (told !== '') return `${told} ${summaryOf(run)}`;
  const usual = median(steps.map((step) => step.durNs)) ?? 0;
  return `Steps take ${formatDuration(usual)} (median of ${formatCount(steps.length)}). ${summaryOf(run)}`;
}

function TimelineView({
  session,
  theme,
}: {
  readonly session: Session;
  readonly theme: ReadonlySignal<Theme>;
}): JSX.Element {
  const { store, engine, layout, steps } = session;
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
    // A shorter list moves the browser's own scroll position without an event that we would hear in time.
    void layout.value;
    queueMicrotask(() => {
      if (scroller.current !== null) engine.scrollTop.value = scroller.current.scrollTop;
    });
  });
  const { heightPx, pinnedPx, shown } = layout.value;
  const area = store.view.steps.value;
  const hosts = session.run.hosts;
  return (
    <div class="ss-timeline-page">
      <PageHead
        title="Timeline"
        summary={stepSentence(session)}
        side={
          <>
            {hosts.length > 0 ? (
              <span class="ss-quiet">{hosts.length > 3 ? plural(hosts.length, 'host') : hosts.join(', ')}</span>
            ) : undefined}
            {area === undefined ? undefined : (
              <button
                type="button"
                class="ss-chip"
                data-testid="range-chip"
                onClick={() => {
                  store.view.steps.value = undefined;
                }}
              >
                Range: {area.from === area.to ? `step ${area.from}` : `steps ${area.from}–${area.to}`}
                <Icon name="close" />
              </button>
            )}
          </>
        }
      />
      <Toolbar session={session} theme={theme} />
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
            <span class="ss-quiet">{plural(shown, 'track')}</span>
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
        {steps.length === 0 ? undefined : <span class="ss-hidden">{plural(steps.length, 'step')}</span>}
      </div>
      {hintClosed.value ? undefined : (
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
      )}
      <Drawer session={session} theme={theme} />
    </div>
  );
}
