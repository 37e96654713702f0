// hand-over.ts: sends a trace to Perfetto's page in another tab with `postMessage`: pings the page until it answers,
// then sends the bytes. This works from any port and through tunnels, and the server allows no other origin.

const ASK_MS = 100;
const PATIENCE_MS = 30_000;

const CANCELLED = 'Cannot hand over the trace: it was cancelled.';
const DOWNLOAD = 'download the file and open it there.';

/** The used members of the other tab. */
export interface OtherTab {
  postMessage(message: unknown, origin: string, transfer?: Transferable[]): void;
  readonly closed?: boolean;
}

/** The used members of a window. */
export interface Opener {
  open(url: string): OtherTab | null;
  addEventListener(type: 'message', listener: (event: MessageEvent) => void): void;
  removeEventListener(type: 'message', listener: (event: MessageEvent) => void): void;
}

export interface HandedOver {
  readonly site: string;
  readonly title: string;
  readonly fileName: string;
  read(signal: AbortSignal): Promise<ArrayBuffer>;
  readonly signal?: AbortSignal;
  readonly patienceMs?: number;
}

/** Waits until the tab answers. Rejects on a failed read, a closed tab, a timeout, or a cancel. */
function answerOf(
  opener: Opener,
  tab: OtherTab,
  reading: Promise<unknown>,
  { site, signal, patienceMs = PATIENCE_MS }: HandedOver,
): Promise<void> {
  return new Promise<void>((resolve, reject) => {
    const stop = () => {
      clearInterval(asking);
      clearTimeout(late);
      opener.removeEventListener('message', onMessage);
      signal?.removeEventListener('abort', onAbort);
    };
    const fail = (why: string) => {
      stop();
      reject(new Error(why));
    };
    const onMessage = (event: MessageEvent) => {
      // Accepts only this tab, and only while it shows that site: any page can send messages.
      if (event.origin !== site || event.data !== 'PONG' || event.source !== tab) return;
      stop();
      resolve();
    };
    const onAbort = () => fail(CANCELLED);
    const asking = setInterval(() => {
      if (tab.closed === true) fail('Cannot hand over the trace: the other tab was closed.');
      else tab.postMessage('PING', site);
    }, ASK_MS);
    const late = setTimeout(
      () => fail(`Cannot hand over the trace: the page did not answer. Check the internet connection, or ${DOWNLOAD}`),
      patienceMs,
    );
    opener.addEventListener('message', onMessage);
    signal?.addEventListener('abort', onAbort);
    reading.catch((error: unknown) => {
      stop();
      reject(error);
    });
  });
}

/** Rejects with a sentence if the tab is blocked, does not answer, or the trace cannot be read. */
export async function handOver(opener: Opener, what: HandedOver): Promise<void> {
  const tab = opener.open(what.site);
  if (tab === null) {
    throw new Error(`Cannot hand over the trace: the browser did not allow another tab. Allow it, or ${DOWNLOAD}`);
  }
  const stopped = new AbortController();
  what.signal?.addEventListener('abort', () => stopped.abort());
  const reading = what.read(stopped.signal);
  try {
    await answerOf(opener, tab, reading, what);
    const buffer = await reading;
    if (what.signal?.aborted) throw new Error(CANCELLED);
    const { title, fileName } = what;
    // Not shareable: Perfetto's page then offers no upload.
    const perfetto = { buffer, title, fileName, shareable: false, downloadable: true };
    tab.postMessage({ perfetto }, what.site, [buffer]);
  } catch (error) {
    stopped.abort();
    throw error;
  }
}

/** Reads the whole response and reports progress; rejects if it is not a file, or is truncated. */
export async function readAll(
  response: Response,
  onBytes: (bytes: number) => void,
  limitBytes = 2 ** 31 - 1,
): Promise<ArrayBuffer> {
  if (!response.ok || response.body === null) {
    throw new Error(`Cannot read the trace: the server could not write it (${response.status}).`);
  }
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  let length = 0;
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    length += value.byteLength;
    if (length > limitBytes) {
      await reader.cancel();
      throw new Error('Cannot hand over the trace: it is too large. Download the file, or choose a range.');
    }
    onBytes(length);
  }
  return new Blob(chunks).arrayBuffer();
}
