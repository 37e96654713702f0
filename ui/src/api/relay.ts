// relay.ts: one event stream for all tabs of an origin. A browser allows six connections to an origin, and a stream
// holds one for as long as its tab is open: a seventh tab could ask nothing. The tab that holds a lock opens the
// stream and passes on what it hears; when it closes, another tab gets the lock.

/** What the stream says, and what happened to it. */
export type StreamMessage =
  | { readonly kind: 'event'; readonly name: string; readonly data: string }
  | { readonly kind: 'lost' };

/** What tabs use to find each other; given by tests. */
export interface Tabs {
  /** Messages to the other tabs. */
  readonly channel: Pick<BroadcastChannel, 'postMessage' | 'close'> & {
    onmessage: ((event: MessageEvent) => void) | null;
  };
  /** Calls `lead` when this tab leads, until the signal is aborted. */
  readonly elect: (signal: AbortSignal, lead: () => void) => void;
}

/**
 * The tabs that listen to the same stream; undefined where the browser has no locks (an address that is neither https
 * nor this machine).
 */
export function browserTabs(address: string): Tabs | undefined {
  if (typeof BroadcastChannel === 'undefined' || typeof navigator === 'undefined' || navigator.locks === undefined)
    return undefined;
  const locks = navigator.locks;
  // Several servers may lie behind one origin.
  const name = `stepscope-events ${address}`;
  return {
    channel: new BroadcastChannel(name),
    elect: (signal, lead) => {
      const held = () => {
        lead();
        // The lock is held until the tab closes or nobody listens any more.
        return new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
      };
      locks.request(name, { signal }, held).catch(() => undefined);
    },
  };
}

/** What tabs pass on: the stream's messages, the question of a tab that has just begun to listen, and its answer. */
type Passed = StreamMessage | { readonly kind: 'ask' } | { readonly kind: 'answer'; readonly hello: StreamMessage };

/**
 * Hears the stream, by this tab or by the one that leads. `open` opens the stream in this tab, hands on its messages,
 * and returns what closes it. Ends when the returned function is called.
 */
export function relay(
  tabs: Tabs | undefined,
  open: (hear: (message: StreamMessage) => void) => () => void,
  hear: (message: StreamMessage) => void,
): () => void {
  if (tabs === undefined) return open(hear);
  const stop = new AbortController();
  let close: (() => void) | undefined;
  // As long as the stream is open: its greeting.
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
      // Another tab's question is answered, too.
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
