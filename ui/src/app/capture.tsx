// capture.tsx: the dialog to capture running programs: options, progress and result.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { startCapture, stopCapture } from '../api/capture.ts';
import { type Problem, toProblem } from '../api/client.ts';
import { formatBytes, formatCount, plural } from '../base/format.ts';
import {
  allAddresses,
  type Capture,
  type CaptureRequest,
  failedHosts,
  hasEnded,
  hostText,
  phaseText,
  splitAddresses,
  typedOption,
  wholeNumber,
} from '../model/capture.ts';
import { captureNow, seenEnd, startedHere, takeCapture } from '../state/capture.ts';
import { overlay } from '../state/commands.ts';
import { captureMs, captureUrl } from '../state/preferences.ts';
import type { Store } from '../state/store.ts';
import { Dialog } from '../widgets/dialog.tsx';
import { IconButton } from '../widgets/icon.tsx';
import { askFor, openCaptured } from './capture-watch.ts';
import { serverInfo } from './live-data.ts';

const MOST_MS = 3_600_000;
const MOST_DELAY_MS = 600_000;
const MOST_RETRIES = 20;
const HOST_LEVELS = ['off', 'critical', 'info', 'verbose'] as const;

interface OptionRow {
  readonly id: number;
  readonly name: string;
  readonly value: string;
}

/** Fields of the form in addition to address and duration, which are stored. */
interface More {
  readonly hostLevel: number;
  readonly device: boolean;
  readonly python: boolean;
  readonly retries: string;
  readonly delayMs: string;
  readonly hosts: string;
  readonly options: readonly OptionRow[];
}

const DEFAULTS: More = {
  hostLevel: 2,
  device: true,
  python: false,
  retries: '1',
  delayMs: '0',
  hosts: '',
  options: [],
};

/** Returns the request, or `undefined` while a field is empty or invalid. */
export function requestOf(url: string, durationMs: string, more: More): CaptureRequest | undefined {
  const duration = wholeNumber(durationMs, 1, MOST_MS);
  const retries = wholeNumber(more.retries, 0, MOST_RETRIES);
  const delay = wholeNumber(more.delayMs, 0, MOST_DELAY_MS);
  if (splitAddresses(url).length === 0 || duration === undefined || retries === undefined || delay === undefined)
    return undefined;
  const options = more.options
    .filter((row) => row.name.trim() !== '')
    .map((row) => [row.name.trim(), typedOption(row.value)] as const);
  return {
    urls: allAddresses(url, more.hosts),
    durationMs: duration,
    hostLevel: more.hostLevel,
    device: more.device,
    python: more.python,
    retries,
    delayMs: delay,
    options: Object.fromEntries(options),
  };
}

export function CaptureDialog({ store }: { readonly store: Store }): JSX.Element {
  const [more, setMore] = useState(DEFAULTS);
  const [problem, setProblem] = useState<Problem | undefined>(undefined);
  const [starting, setStarting] = useState(false);
  const capture = captureNow.value;
  const running = capture !== undefined && !hasEnded(capture) ? capture : undefined;
  const ended =
    capture !== undefined && hasEnded(capture) && capture.id === startedHere.value && capture.id !== seenEnd.value
      ? capture
      : undefined;

  const begin = async () => {
    const request = requestOf(captureUrl.peek(), captureMs.peek(), more);
    if (request === undefined || starting) return;
    setStarting(true);
    setProblem(undefined);
    if (capture !== undefined) seenEnd.value = capture.id;
    try {
      const id = await startCapture(request);
      startedHere.value = id;
      // Fetches progress events that arrived before the id was known.
      await askFor(id);
    } catch (error) {
      setProblem(toProblem(error));
    } finally {
      setStarting(false);
    }
  };
  const close = () => {
    overlay.value = undefined;
  };

  return (
    <Dialog title="Capture profile" class="ss-capture-dialog" onClose={close}>
      {running === undefined ? (
        <Form
          more={more}
          onMore={(change) => setMore({ ...more, ...change })}
          starting={starting}
          onCapture={() => void begin()}
          onCancel={close}
        >
          {problem !== undefined ? (
            <Alert
              title={sentence(problem.title, '')}
              hint={problem.hint === undefined ? undefined : sentence(problem.hint)}
            >
              {sentence(problem.detail)}
            </Alert>
          ) : ended !== undefined ? (
            <End capture={ended} onAgain={() => void begin()} onOpen={() => openCaptured(store, ended)} />
          ) : undefined}
        </Form>
      ) : (
        <Running capture={running} onProblem={setProblem} />
      )}
    </Dialog>
  );
}

function Alert(props: {
  readonly title: string;
  readonly hint?: string | undefined;
  readonly children: ComponentChildren;
}): JSX.Element {
  return (
    <div class="ss-capture-alert" role="alert">
      <h3>{props.title}</h3>
      <div>{props.children}</div>
      {props.hint === undefined ? undefined : <p class="ss-quiet">{props.hint}</p>}
    </div>
  );
}

const WHAT_TO_DO: Readonly<Record<string, string>> = {
  refused: 'Does the program run, and has it started its profile service on this port?',
  'timed-out': 'Is the program busy in one long call, or stopped? A later or longer capture may work.',
  'not-a-profiler': 'Give the port of the profile service, not that of a web page.',
  busy: 'Wait until the other capture is over.',
  'name-not-found': 'Check the spelling.',
  'wrote-nothing': 'Capture while the program works, or for longer.',
};

/** Result of a capture, if its run did not open directly. */
function End(props: {
  readonly capture: Capture;
  readonly onAgain: () => void;
  readonly onOpen: () => void;
}): JSX.Element | undefined {
  const { capture } = props;
  const failed = failedHosts(capture);
  const list = (
    <ul>
      {failed.map((host) => (
        <li key={host.address}>{sentence(host.message ?? `${host.address}: ${hostText(host)}`)}</li>
      ))}
    </ul>
  );
  switch (capture.phase) {
    case 'empty':
      return (
        <Alert
          title="Nothing was recorded"
          hint="Capture while it works, or for longer than one step. Higher trace levels record more."
        >
          <p>
            {capture.hosts.map((host) => host.address).join(', ')}: the program ran nothing on the device during these{' '}
            {formatCount(capture.totalMs)} ms, and nothing that it marks.
          </p>
          {list}
          <p class="ss-row">
            <button type="button" class="ss-button" onClick={props.onAgain}>
              Capture again
            </button>
            {capture.run === undefined ? undefined : (
              <button type="button" class="ss-link" onClick={props.onOpen}>
                Open the empty run
              </button>
            )}
          </p>
        </Alert>
      );
    case 'done':
      return failed.length === 0 && capture.run !== undefined ? undefined : (
        <Alert title={`Captured, except from ${plural(failed.length, 'program')}`}>
          {list}
          {capture.run === undefined ? (
            <p>The files are written, but the run is not in the list.</p>
          ) : (
            <p>
              <button type="button" class="ss-button" onClick={props.onOpen}>
                Open the run
              </button>
            </p>
          )}
        </Alert>
      );
    case 'failed': {
      const stages = new Set(failed.map((host) => host.stage ?? ''));
      const [stage = ''] = stages;
      return (
        <Alert title="The capture failed" hint={stages.size === 1 ? WHAT_TO_DO[stage] : undefined}>
          {capture.message === undefined ? list : <p>{sentence(capture.message)}</p>}
        </Alert>
      );
    }
    default:
      return (
        <Alert title="The capture was given up">
          <p>Nothing was kept.</p>
        </Alert>
      );
  }
}

function sentence(text: string, end = '.'): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : end}`;
}

function Running(props: {
  readonly capture: Capture;
  readonly onProblem: (problem: Problem | undefined) => void;
}): JSX.Element {
  const { capture } = props;
  const button = useRef<HTMLButtonElement>(null);
  // The pressed button was removed: moves the focus to this one.
  useEffect(() => button.current?.focus(), []);
  const isRecording = capture.phase === 'recording' || capture.phase === 'waiting';
  const keeps = isRecording && !capture.stopping;
  const stop = async () => {
    props.onProblem(undefined);
    try {
      const first = await stopCapture(capture.id);
      if (first !== undefined) takeCapture(first);
      // Does not wait for the rest if nothing is kept, or if requested again.
      if (!keeps && !capture.stopping) await stopCapture(capture.id);
    } catch (error) {
      if (toProblem(error).status !== 404) props.onProblem(toProblem(error));
    }
  };
  const known = capture.phase === 'recording' && capture.totalMs > 0;
  const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`;
  return (
    <div class="ss-capture-running" data-testid="capture-running" data-phase={capture.phase}>
      <div class="ss-capture-phase">
        <strong role="status">{phaseText(capture)}</strong>
        <span class="ss-quiet ss-tabular">
          {known
            ? `${seconds(capture.elapsedMs)} of ${seconds(capture.totalMs)}`
            : `${seconds(capture.totalMs)} asked for`}
        </span>
      </div>
      <progress
        aria-label="Capture"
        {...(known ? { value: capture.elapsedMs } : {})}
        max={capture.totalMs > 0 ? capture.totalMs : 1}
      />
      <ul class="ss-capture-hosts">
        {capture.hosts.map((host) => (
          <li key={host.address}>
            <span class="ss-mono ss-ellipsis" title={host.address}>
              {host.address}
            </span>
            <span class={host.state === 'failed' ? 'ss-bad' : 'ss-quiet'} title={host.message ?? ''}>
              {host.state === 'connected' && capture.phase === 'recording' ? 'recording' : hostText(host)}
              {host.bytes > 0 ? `, ${formatBytes(host.bytes)}` : ''}
            </span>
          </li>
        ))}
      </ul>
      <div class="ss-capture-buttons">
        <span class="ss-quiet ss-grow">
          {capture.stopping
            ? 'The data recorded so far is being fetched.'
            : 'Closing this window does not end the capture.'}
        </span>
        <button ref={button} type="button" class="ss-button" onClick={() => void stop()}>
          {keeps ? 'Stop early' : 'Give up'}
        </button>
      </div>
    </div>
  );
}

function Form(props: {
  readonly more: More;
  readonly onMore: (change: Partial<More>) => void;
  readonly starting: boolean;
  readonly onCapture: () => void;
  readonly onCancel: () => void;
  readonly children: ComponentChildren;
}): JSX.Element {
  const { more, onMore } = props;
  const url = captureUrl.value;
  const durationMs = captureMs.value;
  const field = useRef<HTMLInputElement>(null);
  const nextRow = useRef(0);
  useEffect(() => field.current?.focus(), []);
  const server = serverInfo.value;
  const refused = server !== undefined && !server.capture;
  const request = requestOf(url, durationMs, more);
  const wrong = (text: string, least: number, most: number) =>
    text.trim() !== '' && wholeNumber(text, least, most) === undefined;
  const setRow = (id: number, change: Partial<OptionRow>) =>
    onMore({ options: more.options.map((row) => (row.id === id ? { ...row, ...change } : row)) });
  const number = (
    label: string,
    value: string,
    least: number,
    most: number,
    onChange: (text: string) => void,
    hint: string,
  ) => (
    <label class="ss-form-field">
      <span>{label}</span>
      <input
        type="number"
        class="ss-filter"
        min={least}
        max={most}
        value={value}
        aria-invalid={wrong(value, least, most)}
        onInput={(event) => onChange(event.currentTarget.value)}
      />
      <small>
        {wrong(value, least, most) ? `A whole number from ${formatCount(least)} to ${formatCount(most)}.` : hint}
      </small>
    </label>
  );
  return (
    <form
      class="ss-form"
      onSubmit={(event) => {
        event.preventDefault();
        if (request !== undefined && !refused) props.onCapture();
      }}
    >
      {refused ? (
        <div class="ss-capture-alert" role="note">
          <h3>This viewer cannot capture</h3>
          <p>{sentence(server?.captureReason ?? 'it does not say why')}</p>
        </div>
      ) : undefined}
      {props.children}
      <label class="ss-form-field">
        <span>Profile service URL</span>
        <input
          ref={field}
          type="text"
          class="ss-filter ss-mono"
          placeholder="localhost:9012"
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          value={url}
          onInput={(event) => {
            captureUrl.value = event.currentTarget.value;
          }}
        />
        <small>Where the program’s profile service listens. Several, with commas between them, become one run.</small>
      </label>
      {number(
        'Duration (ms)',
        durationMs,
        1,
        MOST_MS,
        (text) => {
          captureMs.value = text;
        },
        'A duration longer than one step gives better results.',
      )}
      <details class="ss-more">
        <summary>More options</summary>
        <div>
          <div class="ss-form-grid">
            <label class="ss-form-field">
              <span>Host trace level</span>
              <select
                class="ss-filter"
                value={String(more.hostLevel)}
                onChange={(event) => onMore({ hostLevel: Number(event.currentTarget.value) })}
              >
                {HOST_LEVELS.map((level, at) => (
                  <option key={level} value={String(at)}>
                    {level}
                  </option>
                ))}
              </select>
            </label>
            <div class="ss-form-checks">
              <label class="ss-check">
                <input
                  type="checkbox"
                  checked={more.device}
                  onChange={(event) => onMore({ device: event.currentTarget.checked })}
                />
                Device trace
              </label>
              <label class="ss-check">
                <input
                  type="checkbox"
                  checked={more.python}
                  onChange={(event) => onMore({ python: event.currentTarget.checked })}
                />
                Python trace
              </label>
            </div>
            {number(
              'Retries when empty',
              more.retries,
              0,
              MOST_RETRIES,
              (retries) => onMore({ retries }),
              'Also when nobody answers.',
            )}
            {number(
              'Start delay (ms)',
              more.delayMs,
              0,
              MOST_DELAY_MS,
              (delayMs) => onMore({ delayMs }),
              'All programs start together.',
            )}
          </div>
          <label class="ss-form-field">
            <span>Hosts or workers</span>
            <input
              type="text"
              class="ss-filter ss-mono"
              autocomplete="off"
              autocapitalize="off"
              spellcheck={false}
              value={more.hosts}
              onInput={(event) => onMore({ hosts: event.currentTarget.value })}
            />
            <small>More programs of the same job, with commas; without a port they take the one above.</small>
          </label>
          <fieldset class="ss-form-options">
            <legend>Extra options</legend>
            {more.options.map((row, at) => (
              <div key={row.id} class="ss-row">
                <input
                  type="text"
                  class="ss-filter ss-mono ss-grow"
                  aria-label={`Name of option ${at + 1}`}
                  placeholder="tpu_trace_mode"
                  spellcheck={false}
                  value={row.name}
                  onInput={(event) => setRow(row.id, { name: event.currentTarget.value })}
                />
                <input
                  type="text"
                  class="ss-filter ss-mono ss-grow"
                  aria-label={`Value of option ${at + 1}`}
                  placeholder="TRACE_COMPUTE"
                  spellcheck={false}
                  value={row.value}
                  onInput={(event) => setRow(row.id, { value: event.currentTarget.value })}
                />
                <IconButton
                  icon="close"
                  label={`Remove option ${at + 1}`}
                  onClick={() => onMore({ options: more.options.filter((other) => other.id !== row.id) })}
                />
              </div>
            ))}
            <button
              type="button"
              class="ss-button ss-small"
              onClick={() => {
                nextRow.current += 1;
                onMore({ options: [...more.options, { id: nextRow.current, name: '', value: '' }] });
              }}
            >
              Add an option
            </button>
          </fieldset>
        </div>
      </details>
      <div class="ss-capture-buttons">
        <span class="ss-grow" />
        <button type="button" class="ss-button" onClick={props.onCancel}>
          Cancel
        </button>
        <button
          type="submit"
          class="ss-button ss-primary"
          disabled={request === undefined || refused || props.starting}
          title={request === undefined ? 'Fill in the address and the duration' : 'Capture'}
        >
          Capture
        </button>
      </div>
    </form>
  );
}
