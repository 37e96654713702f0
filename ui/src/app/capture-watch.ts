// capture-watch.ts: opens the run of a finished capture, only in the tab that started it.
import { effect } from '@preact/signals';
import { fetchCapture } from '../api/capture.ts';
import { toProblem } from '../api/client.ts';
import { formatCount, plural } from '../base/format.ts';
import { type Capture, failedHosts, hasEnded } from '../model/capture.ts';
import { captureNow, loseCapture, seenEnd, startedHere, takeCapture } from '../state/capture.ts';
import { announce, overlay } from '../state/commands.ts';
import { goHome, type Store } from '../state/store.ts';

/** Requests the progress of a capture: at its start, and after a lost connection. */
export async function askFor(id: string): Promise<void> {
  try {
    const capture = await fetchCapture(id);
    if (capture !== undefined) takeCapture(capture);
  } catch (error) {
    if (toProblem(error).status === 404) loseCapture(id, 'stepscope was restarted during the capture.');
  }
}

export function openCaptured(store: Store, capture: Capture): void {
  if (capture.run === undefined) return;
  seenEnd.value = capture.id;
  if (overlay.peek() === 'capture') overlay.value = undefined;
  goHome(store, capture.run);
  const saved = capture.hosts.filter((host) => host.state === 'saved');
  const events = saved.reduce((sum, host) => sum + host.events, 0);
  announce(`Captured ${formatCount(events)} events from ${plural(saved.length, 'program')}`);
}

export function bindCapture(store: Store): () => void {
  let told: string | undefined;
  let wasOpen = false;
  const stopEnds = effect(() => {
    const capture = captureNow.value;
    if (capture === undefined || !hasEnded(capture) || capture.id !== startedHere.value || capture.id === told) return;
    told = capture.id;
    const isWhole = capture.phase === 'done' && capture.run !== undefined && failedHosts(capture).length === 0;
    if (overlay.peek() === 'capture') {
      // The dialog shows the error.
      if (isWhole) openCaptured(store, capture);
      return;
    }
    // A user who closed the dialog is busy with something else now.
    if (isWhole) {
      seenEnd.value = capture.id;
      announce('The capture is saved: it is the newest run');
    } else announce('The capture did not work out; Capture profile says why');
  });
  const stopClosing = effect(() => {
    const isOpen = overlay.value === 'capture';
    const capture = captureNow.peek();
    if (wasOpen && !isOpen && capture !== undefined) {
      if (hasEnded(capture)) seenEnd.value = capture.id;
      else announce('The capture goes on; Capture profile shows it');
    }
    wasOpen = isOpen;
  });
  return () => {
    stopEnds();
    stopClosing();
  };
}
