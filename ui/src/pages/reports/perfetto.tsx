// perfetto.tsx: the trace for Perfetto: as a file first; on its own site only after saying what that means.
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { exportUrl } from '../../api/server.ts';
import type { RunDetail } from '../../model/run.ts';
import type { Scope } from '../shared/report.tsx';
import { handOver } from './hand-over.ts';

const SITE = 'https://ui.perfetto.dev';
const HOST = 'ui.perfetto.dev';

export function PerfettoPanel({ run, scope }: { readonly run: RunDetail; readonly scope: Scope }): JSX.Element {
  const [asking, setAsking] = useState(false);
  const [said, setSaid] = useState('');
  const file = exportUrl(run.id, 'perfetto', scope.range);
  const open = async () => {
    setSaid(`Waiting for ${HOST} …`);
    try {
      await handOver(window, SITE, async () => (await fetch(file)).arrayBuffer(), run.name);
      setSaid('The trace was handed to the Perfetto tab of this browser.');
    } catch (error) {
      setSaid(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <div class="ss-perfetto">
      <h3>Open in Perfetto</h3>
      <div class="ss-row ss-wrap">
        <a class="ss-button" href={file} download>
          Download for Perfetto
        </a>
        <button type="button" class="ss-button ss-ghost" aria-expanded={asking} onClick={() => setAsking(!asking)}>
          Open Perfetto’s site …
        </button>
      </div>
      {asking ? (
        <div class="ss-perfetto-note" role="note">
          <p>
            This needs the internet: the page is loaded from {HOST}. The trace stays on this machine: your browser hands
            it from this tab to that one, nothing is uploaded.
          </p>
          <div class="ss-row ss-wrap">
            <button type="button" class="ss-button" onClick={() => void open()}>
              Go to {HOST}
            </button>
            <span class="ss-quiet" role="status">
              {said}
            </span>
          </div>
        </div>
      ) : undefined}
    </div>
  );
}
