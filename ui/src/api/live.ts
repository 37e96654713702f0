// live.ts: the server's event stream, shared by all tabs. Reconnects automatically; reports a lost and a restored
// connection.
import { asNumber, asObject, asText, type JsonObject } from '../base/json.ts';
import { below } from '../base/place.ts';
import type { Capture } from '../model/capture.ts';
import { serverPath } from './address.ts';
import { captureOf } from './capture.ts';
import { connection, ping } from './client.ts';
import { browserTabs, relay, type StreamMessage } from './relay.ts';

export interface LiveHandlers {
  /** Called after each connect and reconnect: everything may have changed. */
  readonly onHello: () => void;
  readonly onRun: (kind: 'added' | 'changed' | 'removed', run: string) => void;
  readonly onProgress: (run: string, phase: string, done: number) => void;
  readonly onCapture: (capture: Capture) => void;
}

const RETRY_MS = 1000;

const address = () => below(`/api/v1${serverPath('/events')}`);

/** Handled events; others are ignored. */
const EVENTS = ['hello', 'lagged', 'run-added', 'run-changed', 'run-removed', 'import-progress', 'capture-progress'];

/** Opens the stream in this tab, and reopens it whenever it breaks. */
function openStream(hear: (message: StreamMessage) => void): () => void {
  let source: EventSource | undefined;
  let retry: ReturnType<typeof setTimeout> | undefined;
  let stopped = false;

  const open = () => {
    source = new EventSource(address());
    for (const name of EVENTS) {
      source.addEventListener(name, (event) => {
        const data = event instanceof MessageEvent && typeof event.data === 'string' ? event.data : '{}';
        hear({ kind: 'event', name, data });
      });
    }
    source.onerror = () => {
      source?.close();
      if (stopped) return;
      hear({ kind: 'lost' });
      retry = setTimeout(async () => {
        if (stopped) return;
        if (await ping()) open();
        else source?.onerror?.(new Event('error'));
      }, RETRY_MS);
    };
  };

  open();
  return () => {
    stopped = true;
    clearTimeout(retry);
    source?.close();
  };
}

function fieldsOf(data: string): JsonObject {
  try {
    return asObject(JSON.parse(data)) ?? {};
  } catch {
    return {};
  }
}

/** Listens until the returned function is called; all tabs of the origin share one stream. */
export function listen(handlers: LiveHandlers): () => void {
  return relay(browserTabs(address()), openStream, (message) => {
    if (message.kind === 'lost') {
      connection.value = 'lost';
      return;
    }
    const fields = fieldsOf(message.data);
    const run = asText(fields['run']) ?? '';
    switch (message.name) {
      case 'hello':
        connection.value = 'connected';
        handlers.onHello();
        break;
      case 'lagged':
        handlers.onHello();
        break;
      case 'run-added':
        handlers.onRun('added', run);
        break;
      case 'run-changed':
        handlers.onRun('changed', run);
        break;
      case 'run-removed':
        handlers.onRun('removed', run);
        break;
      case 'import-progress':
        handlers.onProgress(run, asText(fields['phase']) ?? '', asNumber(fields['done']) ?? 0);
        break;
      case 'capture-progress': {
        const capture = captureOf(fields);
        if (capture !== undefined) handlers.onCapture(capture);
        break;
      }
    }
  });
}
