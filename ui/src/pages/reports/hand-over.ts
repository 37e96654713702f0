// hand-over.ts: gives a trace to Perfetto's page in another tab, from browser tab to browser tab: the page is asked until
// it answers, then gets the bytes. This works from any port and through tunnels, and the server opens nothing to others.

const ASK_MS = 100;
const PATIENCE_MS = 30_000;

/** The parts of a window that are needed here. */
export interface Opener {
  open(url: string): { postMessage(message: unknown, origin: string, transfer?: Transferable[]): void } | null;
  addEventListener(type: 'message', listener: (event: MessageEvent) => void): void;
  removeEventListener(type: 'message', listener: (event: MessageEvent) => void): void;
}

/** Fails with a sentence when the tab may not be opened, or does not answer. */
export async function handOver(
  opener: Opener,
  site: string,
  read: () => Promise<ArrayBuffer>,
  title: string,
  patienceMs = PATIENCE_MS,
): Promise<void> {
  const tab = opener.open(site);
  if (tab === null) throw new Error('The browser did not allow another tab. Download the file and open it there.');
  const reading = read();
  // Whoever waits for the answer hears of a failed read first.
  const answered = new Promise<void>((resolve, reject) => {
    const stop = () => {
      clearInterval(asking);
      clearTimeout(late);
      opener.removeEventListener('message', onMessage);
    };
    const onMessage = (event: MessageEvent) => {
      if (event.origin !== site || event.data !== 'PONG') return;
      stop();
      resolve();
    };
    const asking = setInterval(() => tab.postMessage('PING', site), ASK_MS);
    const late = setTimeout(() => {
      stop();
      reject(new Error('The page did not answer. Download the file and open it there.'));
    }, patienceMs);
    opener.addEventListener('message', onMessage);
    reading.catch((error: unknown) => {
      stop();
      reject(error);
    });
  });
  await answered;
  const buffer = await reading;
  tab.postMessage({ perfetto: { buffer, title } }, site, [buffer]);
}
