// gate.ts: all requests pass here. At most three at a time (the event stream is the fourth connection), most urgent
// first; a newer request of the same lane supersedes an older one that nobody waits for any more.

export type Urgency = 'now' | 'soon' | 'later';

const RANK: Readonly<Record<Urgency, number>> = { now: 0, soon: 1, later: 2 };

interface Waiting {
  readonly urgency: Urgency;
  readonly order: number;
  readonly start: () => void;
}

const CANCELLED_REST_MS = 30;

/** Runs tasks, at most `limit` at once, by urgency and then by age. */
export class Gate {
  private readonly waiting: Waiting[] = [];
  private running = 0;
  private order = 0;

  constructor(private readonly limit: number) {}

  /** Aborting before the task's turn takes it out of the queue. */
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
              // A cancelled request is over for us at once, for the browser and the server a moment later.
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
