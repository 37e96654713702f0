// copies.tsx: the rate of copies against their size.
import type { JSX } from 'preact';
import { plural } from '../../base/format.ts';
import { cellText } from '../../model/cell.ts';
import { numberAt, type ReportRow, type ReportTable, textAt } from '../../model/report.ts';
import { seriesColour } from '../../model/step-buckets.ts';
import { Figure } from '../../widgets/figure.tsx';
import { type Dot, Scatter } from '../../widgets/scatter.tsx';
import { openEvent } from '../shared/links.tsx';
import type { PageProps } from '../shared/report.tsx';

const RATE = 'rate_bytes_per_second';

export interface CopyDot extends Dot {
  readonly event: number | undefined;
}

/** Returns one dot per size and direction, and the legend with the directions by time. Pure. */
export function copyDots(table: ReportTable): {
  readonly dots: readonly CopyDot[];
  readonly directions: readonly string[];
} {
  const sums = new Map<string, number>();
  const usable = table.rows.filter((row) => (numberAt(row, 'size_bytes') ?? 0) > 0 && (numberAt(row, RATE) ?? 0) > 0);
  for (const row of usable) {
    const name = textAt(row, 'name') ?? '';
    sums.set(name, (sums.get(name) ?? 0) + (numberAt(row, 'total_ns') ?? 0));
  }
  const directions = [...sums.keys()].sort((a, b) => (sums.get(b) ?? 0) - (sums.get(a) ?? 0) || a.localeCompare(b));
  const title = (row: ReportRow): string => {
    const text = (key: string, unit: 'bytes' | 'bytes_per_second' | 'count' | 'ns') => cellText(row[key], unit);
    return `${textAt(row, 'name') ?? ''}, ${text('size_bytes', 'bytes')}: ${text(RATE, 'bytes_per_second')} (${text('worst_rate_bytes_per_second', 'bytes_per_second')} to ${text('best_rate_bytes_per_second', 'bytes_per_second')}), ${plural(numberAt(row, 'count') ?? 0, 'copy', 'copies')}, ${text('total_ns', 'ns')} in total`;
  };
  return {
    directions,
    dots: usable.map((row) => ({
      key: `${textAt(row, 'name') ?? ''} ${numberAt(row, 'size_bytes') ?? 0}`,
      x: numberAt(row, 'size_bytes') ?? 1,
      y: numberAt(row, RATE) ?? 1,
      weight: numberAt(row, 'total_ns') ?? 0,
      colour: seriesColour(directions.indexOf(textAt(row, 'name') ?? '')),
      title: title(row),
      event: numberAt(row, 'slowest'),
    })),
  };
}

export function CopyRates({
  page,
  table,
}: {
  readonly page: PageProps;
  readonly table: ReportTable;
}): JSX.Element | undefined {
  const { dots, directions } = copyDots(table);
  if (dots.length === 0) return undefined;
  return (
    <Figure
      title="Copy bandwidth by size"
      testId="copy-rates"
      data={table}
      note="Larger dots took more time. Click a dot to see its slowest copy."
      legend={directions.map((label, at) => ({ label, colour: seriesColour(at) }))}
    >
      <Scatter
        label="Copy bandwidth by size"
        dots={dots}
        heightPx={260}
        xTitle="copy size"
        formatX={(value) => cellText(value, 'bytes')}
        formatY={(value) => cellText(value, 'bytes_per_second')}
        binary
        onChoose={(key) => {
          const event = dots.find((dot) => dot.key === key)?.event;
          if (event !== undefined) void openEvent(page.store, page.run, event);
        }}
      />
    </Figure>
  );
}
