// toolbar.tsx: zoom buttons, grouping, colouring, track filter, steps, and the current limits.

import type { JSX } from 'preact';
import { formatCount, formatDuration, formatRange, plural } from '../../base/format.ts';
import { PATH_EDGES } from '../../model/generated.ts';
import { kindLabel } from '../../model/kind.ts';
import { describeStepLimit } from '../../model/step-limit.ts';
import { GROUPINGS, type Grouping } from '../../model/track.ts';
import { COLOURINGS, type Colouring } from '../../state/address.ts';
import { run as runCommand } from '../../state/commands.ts';
import { Icon, IconButton } from '../../widgets/icon.tsx';
import { PageLink } from '../shared/links.tsx';
import { currentStep, goStep, type Session } from './session.ts';

export function Toolbar({
  session,
  onLegend,
  isLegendOpen,
}: {
  readonly session: Session;
  readonly onLegend: () => void;
  readonly isLegendOpen: boolean;
}): JSX.Element {
  const { store, engine } = session;
  const { view } = store;
  return (
    <div class="ss-toolbar" role="toolbar" aria-label="Timeline tools">
      <button type="button" class="ss-button" onClick={() => runCommand('fit')} title="Fit the whole run (0)">
        Fit
      </button>
      <span class="ss-button-group">
        <IconButton icon="minus" label="Zoom out (S or −)" onClick={() => engine.zoomAt(undefined, 2)} />
        <IconButton icon="plus" label="Zoom in (W or +)" onClick={() => engine.zoomAt(undefined, 0.5)} />
      </span>
      <label class="ss-field">
        <span>Group</span>
        <select
          value={view.grouping.value}
          onChange={(event) => {
            session.setGrouping(event.currentTarget.value as Grouping);
          }}
        >
          {GROUPINGS.map((item) => (
            <option key={item.id} value={item.id}>
              {item.label}
            </option>
          ))}
        </select>
      </label>
      <label class="ss-field">
        <span>Colour</span>
        <select
          value={session.colouring.value}
          onChange={(event) => {
            view.colouring.value = event.currentTarget.value as Colouring;
          }}
        >
          {COLOURINGS.map((item) => (
            <option key={item.id} value={item.id}>
              {item.label}
            </option>
          ))}
        </select>
      </label>
      <button type="button" class="ss-button ss-legend-button" aria-expanded={isLegendOpen} onClick={onLegend}>
        Legend
      </button>
      <button
        type="button"
        class="ss-button"
        aria-pressed={view.criticalPath.value}
        title="Highlight what the end of the step in view waited for (X)"
        onClick={() => runCommand('critical-path')}
      >
        Critical path
      </button>
      {view.criticalPath.value ? <PathKey session={session} /> : undefined}
      {session.tracks.filter((track) => track.kind === 'counter').length > 1 ? (
        <button
          type="button"
          class="ss-button"
          aria-label="Shared counter scale"
          aria-pressed={view.counterScaling.value === 'shared'}
          title="One vertical scale for all counters of one unit, in place of a scale for each"
          onClick={() => {
            view.counterScaling.value = view.counterScaling.peek() === 'shared' ? 'track' : 'shared';
          }}
        >
          Shared <span class="ss-wide-only">counter </span>scale
        </button>
      ) : undefined}
      <input
        type="text"
        class="ss-filter"
        aria-label="Filter tracks"
        placeholder="Filter tracks"
        spellcheck={false}
        value={view.filter.value}
        aria-invalid={session.filterProblem.value !== undefined}
        title={session.filterProblem.value ?? 'Words, comma = or, !word = not, /regex/'}
        onInput={(event) => {
          view.filter.value = event.currentTarget.value;
        }}
        onKeyDown={(event) => {
          if (event.key === 'Escape' && view.filter.peek() !== '') {
            event.stopPropagation();
            view.filter.value = '';
          }
        }}
      />
      <Limits session={session} />
      <span class="ss-grow" />
      {session.stepSpans.value.length > 0 ? <StepBox session={session} /> : undefined}
    </div>
  );
}

/** How certain the edges of the path are, as they are drawn, and whose path it is. */
function PathKey({ session }: { readonly session: Session }): JSX.Element {
  const { run, store, criticalPath } = session;
  const { value, loading } = criticalPath.state.value;
  const step = criticalPath.step.value;
  const of = step === undefined ? 'the run' : `step ${step.n}`;
  const steps = step === undefined ? undefined : { from: step.n, to: step.n };
  return (
    <span class="ss-path-key" data-testid="path-key" data-step={step?.n} data-total={value?.total} aria-busy={loading}>
      {value === undefined ? (
        <span class="ss-quiet">Computing…</span>
      ) : value.whole === undefined ? (
        <span class="ss-quiet">No path: no thread or device has events</span>
      ) : (
        <>
          <PageLink store={store} run={run} tool="critical-path" view={{ steps, area: undefined }}>
            {of}: {plural(value.total, 'segment')}
          </PageLink>
          {PATH_EDGES.map((edge) => (
            <span key={edge} class="ss-row">
              <i data-edge={edge} />
              {edge}
            </span>
          ))}
        </>
      )}
    </span>
  );
}

function Chip(props: {
  readonly onClick: () => void;
  readonly children: string;
  readonly testId?: string;
  readonly title?: string;
}): JSX.Element {
  return (
    <button type="button" class="ss-chip" data-testid={props.testId} title={props.title} onClick={props.onClick}>
      {props.children}
      <Icon name="close" />
    </button>
  );
}

/** Chips for every limit of the picture; a click removes the limit. */
function Limits({ session }: { readonly session: Session }): JSX.Element {
  const { store, run, engine } = session;
  const { view } = store;
  const { kind, only, hides, rank, steps } = view;
  const limit = steps.value;
  const [single] = only.value;
  const onlyText =
    only.value.length === 1
      ? (session.tracks.find((track) => track.key === single)?.name ?? '1 track')
      : plural(only.value.length, 'track');
  return (
    <>
      {kind.value === undefined ? undefined : (
        <Chip
          testId="kind-chip"
          onClick={() => {
            kind.value = undefined;
          }}
        >
          {`Only ${kindLabel(kind.value)}`}
        </Chip>
      )}
      {only.value.length === 0 ? undefined : (
        <Chip
          onClick={() => {
            only.value = [];
          }}
        >
          {`Only ${onlyText}`}
        </Chip>
      )}
      {hides.value.length === 0 ? undefined : (
        <button
          type="button"
          class="ss-chip"
          onClick={() => {
            hides.value = [];
          }}
        >
          {formatCount(hides.value.length)} hidden, show
        </button>
      )}
      {rank.value === undefined ? undefined : (
        <Chip
          onClick={() => {
            rank.value = undefined;
          }}
        >
          {`Rank ${rank.value}`}
        </Chip>
      )}
      {limit === undefined ? undefined : (
        <Chip
          testId="range-chip"
          onClick={() => {
            steps.value = undefined;
          }}
        >
          {`Range: ${describeStepLimit(limit)}`}
        </Chip>
      )}
      {run.outside === 0 ? undefined : (
        <button
          type="button"
          class="ss-chip"
          data-testid="outside-chip"
          title={`The recording spans ${formatDuration(run.durationNs)}; nearly all events lie within the shown range`}
          onClick={() => engine.show(engine.bounds)}
        >
          {plural(run.outside, 'event')} far outside, show
        </button>
      )}
    </>
  );
}

function StepBox({ session }: { readonly session: Session }): JSX.Element {
  const step = currentStep(session, session.engine.shown.value);
  return (
    <span class="ss-steps">
      <span>Step</span>
      <button type="button" class="ss-icon-button" aria-label="Previous step" onClick={() => goStep(session, -1)}>
        ‹
      </button>
      <output aria-label="Current step">{step?.n ?? '–'}</output>
      <button type="button" class="ss-icon-button" aria-label="Next step" onClick={() => goStep(session, 1)}>
        ›
      </button>
    </span>
  );
}

/** The visible range and the number of tracks, above the track names. */
export function Corner({ session }: { readonly session: Session }): JSX.Element {
  const { layout, store, tracks } = session;
  const { quietHidden, shown } = layout.value;
  const { quiet } = store.view;
  return (
    <div class="ss-corner-text">
      <RangeText session={session} />
      <span class="ss-row">
        <span class="ss-quiet">{plural(shown, 'track')}</span>
        {quietHidden > 0 ? (
          <button
            type="button"
            class="ss-link"
            onClick={() => {
              quiet.value = true;
            }}
          >
            {formatCount(quietHidden)} quiet, show
          </button>
        ) : quiet.value && tracks.some((track) => track.hidden) ? (
          <button
            type="button"
            class="ss-link"
            onClick={() => {
              quiet.value = false;
            }}
          >
            hide quiet ones
          </button>
        ) : undefined}
      </span>
    </div>
  );
}

function RangeText({ session }: { readonly session: Session }): JSX.Element {
  const { startNs, endNs } = session.engine.shown.value;
  const text = formatRange(startNs, endNs);
  return (
    <span
      role="status"
      aria-label="Visible range"
      data-testid="visible-range"
      class="ss-range ss-ellipsis"
      title={text}
    >
      {text}
    </span>
  );
}
