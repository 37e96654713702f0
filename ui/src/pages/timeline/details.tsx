// details.tsx: all details of the selected event.
import type { ComponentChildren, JSX } from 'preact';
import { useState } from 'preact/hooks';
import { exactTime, formatCount, formatDuration, plural, significant } from '../../base/format.ts';
import { type EventContext, type EventDetail, type FrameRef, standingOf } from '../../model/event.ts';
import { programOpOfEvent } from '../../model/op-row.ts';
import { fitRange } from '../../model/viewport.ts';
import { CopyButton, Loading, ProblemState } from '../../widgets/states.tsx';
import { OpLinks } from '../shared/op-links.tsx';
import { DrawerEmpty } from './drawer-parts.tsx';
import { addNote, focusSelection, type Session, selectById, selectionToArea } from './session.ts';

const LONG_TEXT = 400;

export function DetailsTab({ session }: { readonly session: Session }): JSX.Element {
  const { store, detail, selected } = session;
  const id = store.view.selected.value;
  if (id === undefined) {
    return (
      <DrawerEmpty reason="no-match" title="No event is selected.">
        Click one, or press <kbd>/</kbd> to search and <kbd>Enter</kbd> to go to a match.
      </DrawerEmpty>
    );
  }
  const { value, problem, loading } = detail.state.value;
  if (problem !== undefined) return <ProblemState problem={problem} />;
  const known = value?.id === id ? value : undefined;
  if (known === undefined) {
    const quick = selected.value;
    if (quick === undefined) return <Loading what="Reading the event" />;
    return (
      <section aria-label="Event details" class="ss-details ss-dim" data-testid="event-details" aria-busy={loading}>
        <h2>{quick.label}</h2>
      </section>
    );
  }
  return <EventView session={session} event={known} />;
}

function EventView({ session, event }: { readonly session: Session; readonly event: EventDetail }): JSX.Element {
  const { engine, store, run } = session;
  const { among } = event;
  const of = programOpOfEvent(event);
  const path = session.paths.get(event.track) ?? event.trackName;
  const filled = event.args.filter(([, value]) => !isBlank(value));
  const blank = event.args.length - filled.length;
  const share = event.durNs > 0 ? ` (${significant((event.selfNs / event.durNs) * 100)} %)` : '';
  return (
    <section aria-label="Event details" class="ss-details" data-testid="event-details">
      <div class="ss-details-head">
        <h2 title={event.demangled ?? event.name}>{event.label}</h2>
        <div class="ss-row ss-wrap">
          <button type="button" class="ss-button ss-small" onClick={() => focusSelection(session)}>
            Show
          </button>
          <button
            type="button"
            class="ss-button ss-small"
            onClick={() => engine.show(fitRange(event.startNs, event.startNs + event.durNs, 0.8, engine.bounds))}
          >
            Fit
          </button>
          <button
            type="button"
            class="ss-button ss-small"
            onClick={() => {
              store.view.match.value = undefined;
              store.view.query.value = event.name;
            }}
          >
            Find all
          </button>
          {event.durNs > 0 ? (
            <button type="button" class="ss-button ss-small" onClick={() => selectionToArea(session)}>
              As area
            </button>
          ) : undefined}
          <button type="button" class="ss-button ss-small" onClick={() => addNote(session, '')}>
            Mark
          </button>
          <CopyButton text={eventJson(event)} label="Copy as JSON" />
        </div>
      </div>
      {of === undefined ? undefined : <OpLinks page={{ store, run }} of={of} without={['timeline']} />}
      {among === undefined || among.count < 2 ? undefined : (
        <p class="ss-quiet">
          {standingOf(among, event.durNs)}
          {among.minNs === among.maxNs
            ? '.'
            : `; median ${formatDuration(among.medianNs)}, longest ${formatDuration(among.maxNs)}.`}{' '}
          <button
            type="button"
            class="ss-link"
            onClick={() => {
              store.view.tab.value = 'similar';
            }}
          >
            See all
          </button>
        </p>
      )}
      <div class="ss-details-columns">
        <dl class="ss-terms">
          <Term name="Start">{exactTime(event.startNs)}</Term>
          <Term name="Duration">{event.instant ? 'instant' : exactTime(event.durNs)}</Term>
          <Term name="Self time">
            {exactTime(event.selfNs)}
            {event.selfNs < event.durNs ? share : ''}
          </Term>
          <ContextTerms session={session} context={event.context} />
          {event.demangled === undefined ? undefined : <Term name="Whole name">{event.demangled}</Term>}
          {event.label === event.name ? undefined : <Term name="Name in the file">{event.name}</Term>}
          <Term name="Track">{path}</Term>
          <Term name="Kind">
            {event.kindText}
            {event.category === undefined ? '' : ` · ${event.category}`}
          </Term>
          {event.step === undefined ? undefined : <Term name="Step">{String(event.step)}</Term>}
          {event.unfinished ? <Term name="State">unfinished: its end was not recorded</Term> : undefined}
          {event.derived ? (
            <Term name="Origin">derived: computed by a tool, not recorded by the program</Term>
          ) : undefined}
          {event.source === undefined ? undefined : <Term name="Source">{event.source}</Term>}
          {event.flowIn + event.flowOut === 0 ? undefined : (
            <Term name="Links">
              <button
                type="button"
                class="ss-link"
                onClick={() => {
                  store.view.tab.value = 'flows';
                }}
              >
                {linksText(event)}
              </button>
            </Term>
          )}
        </dl>
        <dl class="ss-terms ss-args" aria-label="Arguments">
          {filled.map(([name, value]) => (
            <Term key={name} name={name}>
              <Value value={value} />
              {event.argsCut[name] === undefined ? undefined : (
                <em> cut; {String(event.argsCut[name])} bytes in all</em>
              )}
            </Term>
          ))}
        </dl>
      </div>
      {event.argsError === undefined ? undefined : (
        <p class="ss-warn-text">Arguments cannot be shown: {event.argsError}</p>
      )}
      {blank === 0 ? undefined : (
        <p class="ss-quiet" title={event.args.flatMap(([name, value]) => (isBlank(value) ? [name] : [])).join(', ')}>
          {plural(blank, 'empty argument')} left out.
        </p>
      )}
      {event.args.length === 0 && event.argsError === undefined ? (
        <p class="ss-quiet">The file has no arguments for this event.</p>
      ) : undefined}
      {event.stack.length === 0 ? undefined : (
        <>
          <h3>Stack</h3>
          <ol class="ss-stack">
            {event.stack.map((frame, at) => (
              <li key={at}>{frame}</li>
            ))}
          </ol>
        </>
      )}
      <span class="ss-hidden">{run.name}</span>
    </section>
  );
}

/** Returns whether an arg is empty. */
const isBlank = (value: unknown): boolean =>
  value === null || (typeof value === 'string' && value.trim() === '') || (Array.isArray(value) && value.length === 0);

const linksText = ({ flowIn, flowOut }: EventDetail): string =>
  [
    ...(flowIn > 0 ? [`caused by ${plural(flowIn, 'event')}`] : []),
    ...(flowOut > 0 ? [`leads to ${plural(flowOut, 'event')}`] : []),
  ].join(', ');

/** The context of the event: its flows and enclosing slices. */
function ContextTerms({
  session,
  context,
}: {
  readonly session: Session;
  readonly context: EventContext;
}): JSX.Element {
  const { launch, operator, shapes, forward, module, line, frames } = context;
  const link = (frame: FrameRef) => (
    <button type="button" class="ss-link" title={frame.name} onClick={() => void selectById(session, frame.id, true)}>
      {frame.label}
    </button>
  );
  const term = (name: string, frame: FrameRef | undefined) =>
    frame === undefined ? undefined : <Term name={name}>{link(frame)}</Term>;
  return (
    <>
      {term('Launched by', operator ?? launch)}
      {operator === undefined ? undefined : term('Launch call', launch)}
      {shapes === undefined ? undefined : (
        <Term name="Input shapes">
          <Value value={shapes} />
        </Term>
      )}
      {term('Forward', forward)}
      {term('Module', module)}
      {term('Python line', line)}
      {frames.length === 0 ? undefined : (
        <Term name="Inside">
          <details class="ss-frames">
            <summary>
              {plural(frames.length, 'slice')}, outermost {frames[frames.length - 1]?.label}
            </summary>
            <ol class="ss-stack">
              {frames.map((frame) => (
                <li key={frame.id}>{link(frame)}</li>
              ))}
            </ol>
          </details>
        </Term>
      )}
    </>
  );
}

function Term({ name, children }: { readonly name: string; readonly children: ComponentChildren }): JSX.Element {
  return (
    <div>
      <dt title={name}>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** A value as text; long ones expand on demand. Always a text node. */
function Value({ value }: { readonly value: unknown }): JSX.Element {
  const [whole, setWhole] = useState(false);
  const text =
    typeof value === 'string'
      ? value
      : typeof value === 'number' || typeof value === 'boolean'
        ? String(value)
        : JSON.stringify(value);
  if (text.length <= LONG_TEXT || whole) return <span class={typeof value === 'string' ? '' : 'ss-mono'}>{text}</span>;
  return (
    <span>
      {text.slice(0, LONG_TEXT)}…{' '}
      <button type="button" class="ss-link" onClick={() => setWhole(true)}>
        show all {formatCount(text.length)} characters
      </button>
    </span>
  );
}

export function eventJson(event: EventDetail): string {
  const { args, argsCut: _cut, argsError: _error, among, ...rest } = event;
  return JSON.stringify({ ...rest, among, args: Object.fromEntries(args) }, undefined, 2);
}
