// fragmentation.tsx: reserved but unused memory over time, and the allocators' statistics of free memory.
import type { ReadonlySignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { formatBytes } from '../../base/format.ts';
import type { Theme } from '../../base/theme.ts';
import { RESERVED_MEMORY_HINTS } from '../../model/generated.ts';
import { type MemoryCurve, unusedOf, unusedTable } from '../../model/memory.ts';
import { type Report, sectionOf } from '../../model/report.ts';
import { codeIn } from '../../model/sentence.ts';
import { hintOf } from '../../model/tools.ts';
import { Figure } from '../../widgets/figure.tsx';
import { LineChart } from '../../widgets/line-chart.tsx';
import { ReportTable } from '../../widgets/report-table.tsx';
import { eventLinkOf } from '../shared/links.tsx';
import { NotRecorded, type PageProps } from '../shared/report.tsx';

/** Returns why there is no fragmentation; without the line that records it if a note of the page has one. */
const missingOf = (run: PageProps['run'], { notes }: Report) => ({
  reason: 'no allocator of this run reports reserved memory: allocators on the CPU take what they need and return it',
  fix: notes.some((note) => codeIn(note) !== undefined) ? '' : hintOf(run, RESERVED_MEMORY_HINTS),
});

export function Fragmentation({
  page,
  report,
  curve,
  theme,
}: {
  readonly page: PageProps;
  readonly report: Report;
  readonly curve: MemoryCurve | undefined;
  readonly theme: ReadonlySignal<Theme>;
}): JSX.Element {
  const section = sectionOf(report, 'fragmentation');
  const growths = sectionOf(report, 'fragmentation_growths');
  const unused = useMemo(() => (curve === undefined ? undefined : unusedOf(curve)), [curve]);
  const lines = useMemo(
    () =>
      unused === undefined
        ? []
        : [{ label: 'reserved, unused', values: unused, colour: (of: Theme) => of.warning, filled: true }],
    [unused],
  );
  const table = useMemo(() => (curve === undefined ? undefined : unusedTable(curve)), [curve]);
  if (section === undefined || section.rows.length === 0) return <NotRecorded missing={missingOf(page.run, report)} />;
  const shared = { eventLink: eventLinkOf(page.store, page.run), plain: true, fit: true };
  return (
    <div class="ss-fragmentation">
      {curve === undefined || table === undefined || lines.length === 0 ? undefined : (
        <Figure
          title={`Reserved by ${curve.name}, unused`}
          testId="unused"
          data={table}
          note="Free blocks that the allocator keeps for reuse, or that are too small for the requests."
        >
          <LineChart
            label={`Reserved by ${curve.name}, unused, over time`}
            timesNs={curve.atNs}
            lines={lines}
            heightPx={140}
            theme={theme}
            format={formatBytes}
            binary
            onCursor={(ns) => {
              page.store.view.at.value = Math.round(ns);
              page.store.view.tab.value = undefined;
            }}
          />
        </Figure>
      )}
      <ReportTable
        caption="Fragmentation"
        testId="fragmentation-table"
        exportName={`${page.run.id}-fragmentation`}
        table={section}
        {...shared}
      />
      {growths === undefined ? undefined : (
        <>
          <h2>{growths.title}</h2>
          <ReportTable
            caption={growths.title}
            testId="fragmentation-growths-table"
            exportName={`${page.run.id}-fragmentation-growths`}
            table={growths}
            {...shared}
          />
        </>
      )}
    </div>
  );
}
