// capture.ts: the running or latest capture, as this tab knows it.
import { signal } from '@preact/signals';
import { type Capture, hasEnded } from '../model/capture.ts';

export const captureNow = signal<Capture | undefined>(undefined);

/** Id of the capture that this tab started: its run opens once it exists. */
export const startedHere = signal<string | undefined>(undefined);

/** Id of the capture whose end the user has seen. */
export const seenEnd = signal<string | undefined>(undefined);

/** Stores the server's progress, unless newer progress is known. */
export function takeCapture(next: Capture): void {
  const now = captureNow.peek();
  const isOlder = now !== undefined && now.id === next.id && now.seq >= next.seq;
  // Late progress of another capture must not hide the running one.
  const isOther = now !== undefined && now.id !== next.id && !hasEnded(now) && hasEnded(next);
  if (!isOlder && !isOther) captureNow.value = next;
}

/** Marks a capture as ended with an unknown result. */
export function loseCapture(id: string, message: string): void {
  const now = captureNow.peek();
  if (now?.id === id && !hasEnded(now)) captureNow.value = { ...now, seq: now.seq + 1, phase: 'failed', message };
}
