import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/preact';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Capture } from '../model/capture.ts';
import { captureNow, loseCapture, seenEnd, startedHere, takeCapture } from '../state/capture.ts';
import { overlay } from '../state/commands.ts';
import { captureMs, captureUrl } from '../state/preferences.ts';
import { createStore } from '../state/store.ts';
import { CaptureDialog, requestOf } from './capture.tsx';
import { bindCapture } from './capture-watch.ts';

const RUNNING: Capture = {
  id: 'a-1',
  seq: 1,
  phase: 'recording',
  stopping: false,
  attempt: 1,
  elapsedMs: 400,
  totalMs: 1000,
  hosts: [{ address: 'localhost:9012', state: 'connected', stage: undefined, message: undefined, bytes: 0, events: 0 }],
  run: undefined,
  message: undefined,
};
const DONE: Capture = {
  ...RUNNING,
  seq: 9,
  phase: 'done',
  run: 'r1',
  hosts: [{ address: 'localhost:9012', state: 'saved', stage: undefined, message: undefined, bytes: 9, events: 3 }],
};
const REFUSED = {
  address: 'localhost:1',
  state: 'failed',
  stage: 'refused',
  message: 'nothing listens at localhost:1: the connection was refused',
  bytes: 0,
  events: 0,
};

/** Answers of a server: what was asked, and what is said. */
const asked: { readonly method: string; readonly url: string; readonly body: string }[] = [];
const answer = (answers: Readonly<Record<string, unknown>>) => {
  vi.stubGlobal('fetch', async (url: string, init: RequestInit) => {
    const method = init.method ?? 'GET';
    asked.push({ method, url, body: String(init.body ?? '') });
    const said = answers[`${method} ${url.replace('/api/v1', '')}`];
    const status = said === undefined ? 404 : method === 'POST' ? 202 : 200;
    return new Response(JSON.stringify(said ?? { title: 'no' }), { status });
  });
};

beforeEach(() => {
  asked.length = 0;
  captureNow.value = undefined;
  startedHere.value = undefined;
  seenEnd.value = undefined;
  captureUrl.value = '';
  captureMs.value = '1000';
  overlay.value = 'capture';
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const captureButton = () => screen.getByRole<HTMLButtonElement>('button', { name: 'Capture' });
const type = (name: string, value: string, role = 'textbox') =>
  fireEvent.input(screen.getByRole(role, { name: new RegExp(`^${name}`) }), { target: { value } });

describe('the form', () => {
  it('cannot be sent without an address and a duration', () => {
    render(<CaptureDialog store={createStore()} />);
    expect(captureButton().disabled).toBe(true);
    type('Profile service URL', 'localhost:9012');
    expect(captureButton().disabled).toBe(false);
    for (const wrong of ['', '0', '-5', '1.5', '3600001']) {
      type('Duration', wrong, 'spinbutton');
      expect(captureButton().disabled, wrong).toBe(true);
    }
    type('Duration', '250', 'spinbutton');
    expect(captureButton().disabled).toBe(false);
    type('Profile service URL', ' , ');
    expect(captureButton().disabled).toBe(true);
  });

  it('sends what it shows, remembers the address, and follows the capture', async () => {
    const running = { ...RUNNING, elapsed_ms: 400, total_ms: 1000 };
    answer({ 'POST /capture': { id: 'a-1' }, 'GET /capture/a-1': running });
    render(<CaptureDialog store={createStore()} />);
    type('Profile service URL', 'localhost:9012, localhost:9013');
    fireEvent.submit(captureButton().closest('form') as HTMLFormElement);
    await waitFor(() => screen.getByTestId('capture-running'));
    expect(JSON.parse(asked[0]?.body ?? '')).toEqual({
      urls: ['localhost:9012', 'localhost:9013'],
      duration_ms: 1000,
      host_level: 2,
      device: true,
      python: false,
      retries: 1,
      delay_ms: 0,
      options: {},
    });
    expect(localStorage.getItem('stepscope.capture-url')).toBe('localhost:9012, localhost:9013');
    expect(screen.getByRole('status').textContent).toBe('Recording');
    expect(screen.getByText('0.4 s of 1.0 s')).toBeTruthy();
  });

  it('shows why the server refuses, and stays as it was', async () => {
    answer({});
    render(<CaptureDialog store={createStore()} />);
    type('Profile service URL', 'far.example:1');
    fireEvent.submit(captureButton().closest('form') as HTMLFormElement);
    await waitFor(() => screen.getByRole('alert'));
    expect(screen.getByRole('textbox', { name: /Profile service/ })).toHaveProperty('value', 'far.example:1');
  });

  it('types options by their look and gives further hosts the port', () => {
    const request = requestOf('a:1', '5', {
      hostLevel: 3,
      device: false,
      python: true,
      retries: '0',
      delayMs: '7',
      hosts: 'b',
      options: [
        { id: 1, name: 'x', value: 'true' },
        { id: 2, name: ' ', value: 'left out' },
      ],
    });
    expect(request).toEqual({
      urls: ['a:1', 'b:1'],
      durationMs: 5,
      hostLevel: 3,
      device: false,
      python: true,
      retries: 0,
      delayMs: 7,
      options: { x: true },
    });
  });
});

describe('a running capture', () => {
  it('is stopped early once, and given up when asked again', async () => {
    captureNow.value = RUNNING;
    answer({ 'DELETE /capture/a-1': { ...RUNNING, seq: 2, stopping: true } });
    render(<CaptureDialog store={createStore()} />);
    const stop = screen.getByRole('button', { name: 'Stop early' });
    expect(document.activeElement).toBe(stop);
    fireEvent.click(stop);
    await waitFor(() => screen.getByRole('button', { name: 'Give up' }));
    expect(asked.length).toBe(1);
    fireEvent.click(screen.getByRole('button', { name: 'Give up' }));
    await waitFor(() => expect(asked.length).toBe(2));
  });

  it('takes newer news only', () => {
    takeCapture({ ...RUNNING, seq: 5 });
    takeCapture({ ...RUNNING, seq: 4, phase: 'connecting' });
    takeCapture({ ...DONE, id: 'old-9' });
    expect(captureNow.value?.phase).toBe('recording');
    loseCapture('a-1', 'gone');
    expect(captureNow.value?.phase).toBe('failed');
  });
});

describe('the end of a capture', () => {
  it('opens the run where it was asked for, with the dialog open', () => {
    const store = createStore();
    const stop = bindCapture(store);
    startedHere.value = 'a-1';
    takeCapture(DONE);
    stop();
    expect(store.place.value).toEqual({ kind: 'tool', run: 'r1', tool: 'overview' });
    expect(overlay.value).toBeUndefined();
  });

  it('moves nothing in other tabs, nor after the dialog was closed', () => {
    const store = createStore();
    const stop = bindCapture(store);
    takeCapture(DONE);
    expect(store.place.value.kind).toBe('runs');
    overlay.value = undefined;
    startedHere.value = 'a-1';
    stop();
    expect(store.place.value.kind).toBe('runs');
  });

  it('names address and stage of a failure', () => {
    startedHere.value = 'a-1';
    captureNow.value = { ...RUNNING, phase: 'failed', hosts: [REFUSED] };
    render(<CaptureDialog store={createStore()} />);
    const alert = screen.getByRole('alert').textContent ?? '';
    expect(alert).toContain('localhost:1');
    expect(alert).toContain('refused');
    // Seen once, it is not shown again.
    const stop = bindCapture(createStore());
    overlay.value = undefined;
    stop();
    cleanup();
    render(<CaptureDialog store={createStore()} />);
    expect(screen.queryByRole('alert')).toBeNull();
  });

  it('explains an empty one, and captures again', async () => {
    startedHere.value = 'a-1';
    captureUrl.value = 'localhost:9012';
    captureNow.value = { ...DONE, phase: 'empty' };
    answer({ 'POST /capture': { id: 'a-2' }, 'GET /capture/a-2': { ...RUNNING, id: 'a-2' } });
    render(<CaptureDialog store={createStore()} />);
    expect(screen.getByRole('alert').textContent).toContain('ran nothing on the device during these 1,000 ms');
    fireEvent.click(screen.getByRole('button', { name: 'Capture again' }));
    await waitFor(() => screen.getByTestId('capture-running'));
  });

  it('keeps what came when a part failed', () => {
    const store = createStore();
    startedHere.value = 'a-1';
    captureNow.value = { ...DONE, hosts: [...DONE.hosts, REFUSED] };
    const stop = bindCapture(store);
    stop();
    expect(store.place.value.kind).toBe('runs');
    render(<CaptureDialog store={store} />);
    fireEvent.click(screen.getByRole('button', { name: 'Open the run' }));
    expect(store.place.value).toEqual({ kind: 'tool', run: 'r1', tool: 'overview' });
  });
});
