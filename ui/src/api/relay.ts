// relay.ts: one event stream for all tabs of an origin. A browser allows six connections per origin, and a stream holds
// one while its tab is open: a seventh tab could send no request. The tab that holds a lock opens the stream and
// forwards its messages. When it closes, another tab gets the lock.

/** A message of the stream, or a change of its connection. */
export type StreamMessage =
  | { readonly kind: 'event'; readonly name: string; readonly data: string }
  | { readonly kind: 'lost' };

/** How tabs find each other; tests replace it. */
export interface Tabs {
  /** Channel to the other tabs. */
  readonly channel: Pick<BroadcastChannel, 'postMessage' | 'close'> & {
    onmessage: ((event: MessageEvent) => void) | null;
  };
  /** Calls `lead` when this tab leads, until the signal is aborted. */
  readonly elect: (signal: AbortSignal, lead: () => void) => void;
}

/**
 * Returns the tabs that share the same stream. `undefined` if the browser has no locks (an address that is neither
 * https nor this machine).
 */
export function browserTabs(address: string): Tabs | undefined {
  if (typeof BroadcastChannel === 'undefined' || typeof navigator === 'undefined' || navigator.locks === undefined)
    return undefined;
  const locks = navigator.locks;
  // Several servers may have the same origin.
  const name = `stepscope-events ${address}`;
  return {
    channel: new BroadcastChannel(name),
    elect: (signal, lead) => {
      const held = () => {
        lead();
        // Holds the lock until the tab closes or has no more listeners.
        return new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
      };
      locks.request(name, { signal }, held).catch(() => undefined);
    },
  };
}

/** Messages between tabs: the stream's messages, the question of a new tab, and its answer. */
type Passed = StreamMessage | { readonly kind: 'ask' } | { readonly kind: 'answer'; readonly hello: StreamMessage };

/**
 * Receives the stream's messages, from this tab or from the leading tab. `open` opens the stream in this tab, forwards
 * its messages, and returns a function that closes it. Ends when the returned function is called.
 */
export function relay(
  tabs: Tabs | undefined,
  open: (hear: (message: StreamMessage) => void) => () => void,
  hear: (message: StreamMessage) => void,
): () => void {
  if (tabs === undefined) return open(hear);
  const stop = new AbortController();
  let close: (() => void) | undefined;
  // The stream's greeting, while the stream is open.
  let hello: StreamMessage | undefined;
  const note = (message: StreamMessage) => {
    if (message.kind === 'lost') hello = undefined;
    else if (message.name === 'hello') hello = message;
  };
  tabs.channel.onmessage = (event) => {
    const message = event.data as Passed;
    if (message.kind === 'ask') {
      if (close !== undefined && hello !== undefined) tabs.channel.postMessage({ kind: 'answer', hello });
    } else if (close === undefined && message.kind === 'answer') {
      // The answer to another tab, which this tab does not need.
      if (hello !== undefined) return;
      note(message.hello);
      hear(message.hello);
    } else if (close === undefined && message.kind !== 'answer') {
      note(message);
      hear(message);
    }
  };
  tabs.elect(stop.signal, () => {
    close = open((message) => {
      note(message);
      hear(message);
      tabs.channel.postMessage(message);
    });
  });
  tabs.channel.postMessage({ kind: 'ask' });
  return () => {
    stop.abort();
    close?.();
    tabs.channel.close();
  };
}
