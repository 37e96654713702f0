// gate.ts: queue of all requests. At most three run at a time (the event stream is the fourth connection), most urgent
// first. A newer request of the same lane replaces an older one that is no longer needed.

export type Urgency = 'now' | 'soon' | 'later';

const RANK: Readonly<Record<Urgency, number>> = { now: 0, soon: 1, later: 2 };

interface Waiting {
  readonly urgency: Urgency;
  readonly order: number;
  readonly start: () => void;
}

const CANCELLED_REST_MS = 30;

/** Runs at most `limit` tasks at a time, by urgency and then by age. */
export class Gate {
  private readonly waiting: Waiting[] = [];
  private running = 0;
  private order = 0;

  constructor(private readonly limit: number) {}

  /** Queues a task. Aborting it before it starts removes it from the queue. */
  run<T>(urgency: Urgency, signal: AbortSignal | undefined, task: () => Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (signal?.aborted) {
        reject(abortError());
        return;
      }
      const entry: Waiting = {
        urgency,
        order: this.order,
        start: () => {
          signal?.removeEventListener('abort', onAbort);
          this.running += 1;
          task()
            .then(resolve, reject)
            .finally(() => {
              const free = () => {
                this.running -= 1;
                this.next();
              };
              // A cancelled request ends here at once, but only a moment later in the browser and the server.
              if (signal?.aborted) setTimeout(free, CANCELLED_REST_MS);
              else free();
            });
        },
      };
      const onAbort = () => {
        const at = this.waiting.indexOf(entry);
        if (at >= 0) this.waiting.splice(at, 1);
        reject(abortError());
      };
      this.order += 1;
      signal?.addEventListener('abort', onAbort, { once: true });
      this.waiting.push(entry);
      this.next();
    });
  }

  private next(): void {
    while (this.running < this.limit && this.waiting.length > 0) {
      let best = 0;
      this.waiting.forEach((entry, at) => {
        const leader = this.waiting[best];
        if (leader === undefined) return;
        const byRank = RANK[entry.urgency] - RANK[leader.urgency];
        if (byRank < 0 || (byRank === 0 && entry.order < leader.order)) best = at;
      });
      this.waiting.splice(best, 1)[0]?.start();
    }
  }
}

export const abortError = (): DOMException => new DOMException('superseded', 'AbortError');

export const isAbort = (error: unknown): boolean => error instanceof DOMException && error.name === 'AbortError';
