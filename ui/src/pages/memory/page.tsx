// page.tsx: memory over time, what is alive at the cursor, the largest, the never freed, the churn.
import type { ReadonlySignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { Theme } from '../../base/theme.ts';
import { PageHead } from '../shared/page-head.tsx';
import { Notes, type PageProps, RangeChip, useReport, useScope, WithReport } from '../shared/report.tsx';
import { TabbedTables, tabsOf } from '../shared/tables.tsx';

const TOP = 5000;

export default function MemoryPage(page: PageProps & { readonly theme: ReadonlySignal<Theme> }): JSX.Element {
  const { store, run } = page;
  const scope = useScope(page);
  const asked = useReport(run, scope.ready ? { kind: 'memory', top: TOP, range: scope.range } : undefined);
  return (
    <div class="ss-page-frame">
      <PageHead
        title="Memory"
        summary={asked.report?.sentence ?? 'What is in memory over time, and what is alive at the peak?'}
        side={<RangeChip store={store} scope={scope} />}
      />
      <div class="ss-page ss-page-full">
        <WithReport asked={asked} what="Adding up memory">
          {(report) => (
            <>
              <TabbedTables page={page} label="Memory" tabs={tabsOf(report, 'Largest')} />
              <Notes notes={report.notes} />
            </>
          )}
        </WithReport>
      </div>
    </div>
  );
}
