// toolbar.tsx: zoom buttons, grouping, colouring, track filter, steps, and what is shown.

import type { ReadonlySignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { formatCount, formatRange, plural } from '../../base/format.ts';
import type { Theme } from '../../base/theme.ts';
import { KIND_LABELS } from '../../model/kind.ts';
import { GROUPINGS, type Grouping } from '../../model/track.ts';
import { COLOURINGS, type Colouring } from '../../state/address.ts';
import { run as runCommand } from '../../state/commands.ts';
import { Icon, IconButton } from '../../widgets/icon.tsx';
import { currentStep, goStep, type Session } from './session.ts';

export function Toolbar({
  session,
  theme,
}: {
  readonly session: Session;
  readonly theme: ReadonlySignal<Theme>;
}): JSX.Element {
  const { store, engine, layout, steps } = session;
  const { view } = store;
  const [legend, setLegend] = useState(false);
  const quiet = layout.value.quietHidden;
  return (
    <div class="ss-toolbar" role="toolbar" aria-label="Timeline tools">
      <button type="button" class="ss-button" onClick={() => runCommand('fit')} title="Fit the whole run (0)">
        Fit
      </button>
      <span class="ss-button-group">
        <IconButton
          icon="minus"
          label="Zoom out (S)"
          onClick={() => engine.zoomAt(engine.size.peek().widthPx / 2, 2)}
        />
        <IconButton
          icon="plus"
          label="Zoom in (W)"
          onClick={() => engine.zoomAt(engine.size.peek().widthPx / 2, 0.5)}
        />
      </span>
      <label class="ss-field">
        <span>Group</span>
        <select
          value={view.grouping.value}
          onChange={(event) => {
            view.grouping.value = event.currentTarget.value as Grouping;
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
          value={view.colouring.value}
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
      {session.tracks.filter((track) => track.kind === 'counter').length > 1 ? (
        <button
          type="button"
          class="ss-button"
          aria-pressed={view.counterScaling.value === 'shared'}
          title="Draw counters of one unit on one scale"
          onClick={() => {
            view.counterScaling.value = view.counterScaling.peek() === 'shared' ? 'track' : 'shared';
          }}
        >
          Shared scale
        </button>
      ) : undefined}
      <span class="ss-legend-anchor">
        <button
          type="button"
          class="ss-button"
          aria-expanded={legend}
          onClick={() => {
            engine.onlyKind.value = undefined;
            setLegend(!legend);
          }}
        >
          Legend
        </button>
        {legend ? <Legend theme={theme.value} session={session} onClose={() => setLegend(false)} /> : undefined}
      </span>
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
      {view.only.value.length > 0 ? (
        <button
          type="button"
          class="ss-chip"
          onClick={() => {
            view.only.value = [];
          }}
        >
          Only{' '}
          {view.only.value.length === 1
            ? (session.tracks.find((track) => track.key === view.only.value[0])?.name ?? '1 track')
            : plural(view.only.value.length, 'track')}
          <Icon name="close" />
        </button>
      ) : undefined}
      {view.hides.value.length > 0 ? (
        <button
          type="button"
          class="ss-chip"
          onClick={() => {
            view.hides.value = [];
          }}
        >
          {formatCount(view.hides.value.length)} hidden, show
        </button>
      ) : undefined}
      {quiet > 0 ? (
        <button
          type="button"
          class="ss-chip"
          onClick={() => {
            view.quiet.value = true;
          }}
        >
          {plural(quiet, 'quiet thread')} hidden, show
        </button>
      ) : view.quiet.value && session.tracks.some((track) => track.hidden) ? (
        <button
          type="button"
          class="ss-chip"
          onClick={() => {
            view.quiet.value = false;
          }}
        >
          Hide quiet threads
        </button>
      ) : undefined}
      <span class="ss-grow" />
      {steps.length > 0 ? <StepBox session={session} /> : undefined}
      <RangeText session={session} />
    </div>
  );
}

function StepBox({ session }: { readonly session: Session }): JSX.Element {
  const step = currentStep(session.steps, session.engine.shown.value);
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

function RangeText({ session }: { readonly session: Session }): JSX.Element {
  const { startNs, endNs } = session.engine.shown.value;
  return (
    <span role="status" aria-label="Visible range" data-testid="visible-range" class="ss-range">
      {formatRange(startNs, endNs)}
    </span>
  );
}

const COLOURING_NOTES: Readonly<Record<Exclude<Colouring, 'kind'>, string>> = {
  name: 'One colour per name; digits do not count.',
  duration: 'From pale (100 ns and less) to strong (1 s and more).',
  layer: 'One colour per layer: the innermost nn.Module around an event on its track. Grey: none was recorded there.',
  rank: 'One colour per rank. Grey: the track belongs to none.',
};

function Legend({
  theme,
  session,
  onClose,
}: {
  readonly theme: Theme;
  readonly session: Session;
  readonly onClose: () => void;
}): JSX.Element {
  const { onlyKind } = session.engine;
  const colouring = session.store.view.colouring.value;
  return (
    <div class="ss-popover ss-legend" role="group" aria-label="Legend">
      {colouring === 'kind' ? (
        [...KIND_LABELS.keys()]
          .filter((kind) => kind > 0)
          .concat(0)
          .map((kind) => (
            <button
              key={kind}
              type="button"
              class="ss-legend-item"
              aria-pressed={onlyKind.value === kind}
              onClick={() => {
                onlyKind.value = onlyKind.peek() === kind ? undefined : kind;
              }}
            >
              <i style={{ background: theme.kinds[kind] ?? theme.muted }} />
              {KIND_LABELS[kind]}
            </button>
          ))
      ) : (
        <p>{COLOURING_NOTES[colouring]}</p>
      )}
      <button
        type="button"
        class="ss-button ss-small"
        onClick={() => {
          onlyKind.value = undefined;
          onClose();
        }}
      >
        Close
      </button>
    </div>
  );
}
