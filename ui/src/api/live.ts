// live.ts: the server's event stream. Reconnects by itself; says when the connection is lost and when it is back.
import { asNumber, asObject, asText, type JsonObject } from '../base/json.ts';
import { below } from '../base/place.ts';
import type { Capture } from '../model/capture.ts';
import { captureOf } from './capture.ts';
import { connection, ping } from './client.ts';

export interface LiveHandlers {
  /** Connected, or connected again: everything may have changed. */
  readonly onHello: () => void;
  readonly onRun: (kind: 'added' | 'changed' | 'removed', run: string) => void;
  readonly onProgress: (run: string, phase: string, done: number) => void;
  readonly onCapture: (capture: Capture) => void;
}

const RETRY_MS = 1000;

/** Listens until the returned function is called. */
export function listen(handlers: LiveHandlers): () => void {
  let source: EventSource | undefined;
  let retry: ReturnType<typeof setTimeout> | undefined;
  let stopped = false;

  const fieldsOf = (event: Event): JsonObject => {
    const text = event instanceof MessageEvent && typeof event.data === 'string' ? event.data : '{}';
    try {
      return asObject(JSON.parse(text)) ?? {};
    } catch {
      return {};
    }
  };

  const open = () => {
    source = new EventSource(below('/api/v1/events'));
    const on = (name: string, handle: (fields: JsonObject) => void) =>
      source?.addEventListener(name, (event) => handle(fieldsOf(event)));
    on('hello', () => {
      connection.value = 'connected';
      handlers.onHello();
    });
    on('lagged', () => handlers.onHello());
    for (const kind of ['added', 'changed', 'removed'] as const) {
      on(`run-${kind}`, (fields) => handlers.onRun(kind, asText(fields['run']) ?? ''));
    }
    on('import-progress', (fields) =>
      handlers.onProgress(asText(fields['run']) ?? '', asText(fields['phase']) ?? '', asNumber(fields['done']) ?? 0),
    );
    on('capture-progress', (fields) => {
      const capture = captureOf(fields);
      if (capture !== undefined) handlers.onCapture(capture);
    });
    source.onerror = () => {
      source?.close();
      if (stopped) return;
      connection.value = 'lost';
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
