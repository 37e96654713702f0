// live-data.ts: keeps the run list and the opened run up to date.
import { effect, signal } from '@preact/signals';
import { setWriteToken, toProblem } from '../api/client.ts';
import { isAbort } from '../api/gate.ts';
import { listen } from '../api/live.ts';
import type { ServerInfo } from '../api/server.ts';
import { fetchRun, fetchRuns, fetchServer } from '../api/server.ts';
import { hasEnded } from '../model/capture.ts';
import { captureNow, takeCapture } from '../state/capture.ts';
import { importProgress, openedRun, runList } from '../state/lists.ts';
import type { Store } from '../state/store.ts';
import { askFor, bindCapture } from './capture-watch.ts';

export const serverInfo = signal<ServerInfo | undefined>(undefined);

const GATHER_MS = 120;
const POLL_MS = 400;

export function bindLiveData(store: Store): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let opening: AbortController | undefined;
  /** Whether the last run failed to open because the server did not answer. */
  let isUnanswered = false;

  const refreshRuns = () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      try {
        runList.value = { ...(await fetchRuns({ urgency: 'soon' })), loaded: true };
      } catch {
        // The connection bar shows the error; the list stays unchanged.
      }
    }, GATHER_MS);
  };

  /**
   * Opens a run. `quietly`: the current content stays until the new one arrives, even while a restarted server imports.
   */
  const open = async (id: string, quietly: boolean) => {
    opening?.abort();
    const abort = new AbortController();
    opening = abort;
    const fault = runList.peek().runs.find((run) => run.id === id && run.state === 'error')?.fault;
    // No request if the list already has the fault: browsers log failed requests on the console.
    if (fault !== undefined) {
      const { file, reason, hint } = fault;
      openedRun.value = { kind: 'failed', id, title: 'The run cannot be opened', detail: reason, where: file, hint };
      return;
    }
    if (!quietly) openedRun.value = { kind: 'opening', id, importing: undefined };
    try {
      for (;;) {
        const answer = await fetchRun(id, 0, { signal: abort.signal });
        if (abort.signal.aborted) return;
        if (answer.kind === 'open') {
          const before = openedRun.peek();
          // Same content: nothing on the screen changes.
          if (!(before.kind === 'open' && before.id === id && before.run.contentHash === answer.run.contentHash)) {
            openedRun.value = { kind: 'open', id, run: answer.run };
          }
          return;
        }
        if (!quietly) openedRun.value = { kind: 'opening', id, importing: answer.importing };
        await new Promise((resolve) => setTimeout(resolve, POLL_MS));
        if (abort.signal.aborted) return;
      }
    } catch (error) {
      if (isAbort(error) || abort.signal.aborted) return;
      const problem = toProblem(error);
      if (quietly && problem.status === 0) return;
      isUnanswered = problem.status === 0;
      openedRun.value = {
        kind: 'failed',
        id,
        title: problem.title,
        detail: problem.detail,
        where: problem.where,
        hint: problem.hint,
      };
    }
  };

  let wasGreeted = false;
  const stopListening = listen({
    onHello: () => {
      // The first greeting follows the first request for the run: nothing has changed in between.
      const isBack = wasGreeted;
      wasGreeted = true;
      fetchServer().then(
        (info) => {
          if (info.token !== undefined) setWriteToken(info.token);
          serverInfo.value = info;
        },
        () => undefined,
      );
      refreshRuns();
      const capture = captureNow.peek();
      if (capture !== undefined && !hasEnded(capture)) void askFor(capture.id);
      const now = openedRun.peek();
      if (now.kind === 'failed' && (isBack || isUnanswered)) void open(now.id, false);
      else if (now.kind === 'open') void open(now.id, true);
    },
    onRun: (kind, run) => {
      refreshRuns();
      const now = openedRun.peek();
      if (kind === 'changed' && now.kind === 'open' && now.id === run) void open(run, true);
    },
    onCapture: takeCapture,
    onProgress: (run, phase, done) => {
      const next = new Map(importProgress.peek());
      if (done >= 1) next.delete(run);
      else next.set(run, { phase, done });
      importProgress.value = next;
      if (done >= 1) refreshRuns();
    },
  });

  const stopOpening = effect(() => {
    const id = store.runId.value;
    if (id === undefined) {
      opening?.abort();
      openedRun.value = { kind: 'none' };
      return;
    }
    const now = openedRun.peek();
    if (now.kind === 'none' || now.id !== id) void open(id, false);
  });

  const stopCapture = bindCapture(store);

  return () => {
    stopListening();
    stopCapture();
    stopOpening();
    clearTimeout(timer);
    opening?.abort();
  };
}
