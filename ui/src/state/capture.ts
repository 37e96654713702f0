// capture.ts: the capture that is under way, or the last one, as this tab knows it.
import { signal } from '@preact/signals';
import { type Capture, hasEnded } from '../model/capture.ts';

export const captureNow = signal<Capture | undefined>(undefined);

/** Id of the capture that was started in this tab: its run is opened when it is there. */
export const startedHere = signal<string | undefined>(undefined);

/** Id of the capture whose end the user has seen. */
export const seenEnd = signal<string | undefined>(undefined);

/** Takes in what the server tells, unless something newer is known. */
export function takeCapture(next: Capture): void {
  const now = captureNow.peek();
  const isOlder = now !== undefined && now.id === next.id && now.seq >= next.seq;
  // Late news of another capture must not hide the one that runs.
  const isOther = now !== undefined && now.id !== next.id && !hasEnded(now) && hasEnded(next);
  if (!isOlder && !isOther) captureNow.value = next;
}

/** Nobody knows how it ended. */
export function loseCapture(id: string, message: string): void {
  const now = captureNow.peek();
  if (now?.id === id && !hasEnded(now)) captureNow.value = { ...now, seq: now.seq + 1, phase: 'failed', message };
}
