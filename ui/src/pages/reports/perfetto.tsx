// perfetto.tsx: exports the trace for Perfetto: as a file, or to its own site after an explanation.
import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { exportUrl } from '../../api/server.ts';
import { formatBytes } from '../../base/format.ts';
import type { RunDetail } from '../../model/run.ts';
import type { Scope } from '../shared/report.tsx';
import { handOver, readAll } from './hand-over.ts';

const SITE = 'https://ui.perfetto.dev';
const HOST = 'ui.perfetto.dev';

/** Hosts whose traces Perfetto opens without confirmation. */
const TRUSTED = new Set(['localhost', '127.0.0.1', '[::1]']);

export function PerfettoPanel({ run, scope }: { readonly run: RunDetail; readonly scope: Scope }): JSX.Element {
  const [asking, setAsking] = useState(false);
  const [said, setSaid] = useState('');
  const busy = useRef<AbortController | undefined>(undefined);
  const [isBusy, setBusy] = useState(false);
  const file = exportUrl(run.id, 'perfetto', scope.range);
  const open = async () => {
    const stop = new AbortController();
    busy.current = stop;
    setBusy(true);
    setSaid(`Waiting for ${HOST} …`);
    try {
      await handOver(
        {
          open: (url) => window.open(url),
          addEventListener: (type, listener) => window.addEventListener(type, listener),
          removeEventListener: (type, listener) => window.removeEventListener(type, listener),
        },
        {
          site: SITE,
          title: scope.label === undefined ? run.name : `${run.name}, ${scope.label}`,
          fileName: `${run.id}.pftrace`,
          signal: stop.signal,
          read: async (signal) =>
            readAll(await fetch(file, { signal }), (bytes) => {
              if (busy.current === stop) setSaid(`Waiting for ${HOST}; ${formatBytes(bytes)} of the trace are read …`);
            }),
        },
      );
      setSaid(
        `The trace was handed to the Perfetto tab of this browser.${
          TRUSTED.has(location.hostname) ? '' : ` Perfetto asks there whether you trust ${location.origin}.`
        }`,
      );
    } catch (error) {
      setSaid(error instanceof Error ? error.message : String(error));
    } finally {
      busy.current = undefined;
      setBusy(false);
    }
  };
  return (
    <div class="ss-perfetto">
      <h3>Open in Perfetto</h3>
      <div class="ss-row ss-wrap">
        <a class="ss-button" href={file} download>
          Download for Perfetto
        </a>
        <span class="ss-quiet">works offline: drop the file on any Perfetto page</span>
        <button type="button" class="ss-button ss-ghost" aria-expanded={asking} onClick={() => setAsking(!asking)}>
          Open Perfetto’s site …
        </button>
      </div>
      {asking ? (
        <div class="ss-perfetto-note" role="note">
          <p>
            This needs the internet: the page is loaded from {HOST}. The trace stays on this machine: your browser hands
            it from this tab to that one, nothing is uploaded, and the page is told not to offer it.
          </p>
          <div class="ss-row ss-wrap">
            <button type="button" class="ss-button" disabled={isBusy} onClick={() => void open()}>
              Go to {HOST}
            </button>
            {isBusy ? (
              <button type="button" class="ss-button ss-ghost" onClick={() => busy.current?.abort()}>
                Cancel
              </button>
            ) : undefined}
            <span class="ss-quiet" role="status">
              {said}
            </span>
          </div>
        </div>
      ) : undefined}
    </div>
  );
}
