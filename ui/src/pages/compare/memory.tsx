// memory.tsx: what holds the memory at the peak of each run.
import type { JSX } from 'preact';
import { formatBytes, significant } from '../../base/format.ts';
import type { HeldMemory } from '../../model/compare.ts';
import { EmptyState } from '../../widgets/states.tsx';
import { Table, type TableColumn } from '../../widgets/table.tsx';
import { PageLink } from '../shared/links.tsx';
import type { Compared } from './props.ts';

const signedBytes = (bytes: number): string =>
  bytes === 0 ? '0 B' : `${bytes < 0 ? '−' : '+'}${formatBytes(Math.abs(bytes))}`;

const OTHER = 'no operation: outside of one, before the recording, or reserved for programs';

export function Memory({ store, comparison, base, other }: Compared): JSX.Element {
  const { memory, measures } = comparison;
  const links = (
    <>
      <PageLink store={store} run={base} tool="memory">
        Memory of the base
      </PageLink>
      ,{' '}
      <PageLink store={store} run={other} tool="memory">
        Memory of the new run
      </PageLink>
    </>
  );
  const peak = measures.find(({ key }) => key === 'peak_memory_bytes');
  const sum = (of: (row: HeldMemory) => number) => memory.reduce((all, row) => all + of(row), 0);
  if (memory.length === 0) {
    return (
      <EmptyState
        reason="not-recorded"
        title="What held the memory is not known"
        why={
          peak === undefined
            ? 'Neither run has a peak of memory. Record with profile_memory=True (PyTorch), or with the memory of the device.'
            : 'A run has no addresses of its allocations, so that frees do not find them. The peaks are among the measures.'
        }
      />
    );
  }
  const number = (
    id: string,
    title: string,
    value: (row: HeldMemory) => number,
    text: (value: number) => string,
    widthPx: number,
  ): TableColumn<HeldMemory> => ({
    id,
    title,
    numeric: true,
    widthPx,
    value,
    cell: (row) => <span title={String(value(row))}>{text(value(row))}</span>,
  });
  const columns: readonly TableColumn<HeldMemory>[] = [
    {
      id: 'operation',
      title: 'Operation',
      pinned: true,
      widthPx: 420,
      value: ({ operation }) => (operation === '' ? OTHER : operation),
      cell: ({ operation }) => (operation === '' ? <span class="ss-quiet">{OTHER}</span> : operation),
    },
    number('base_bytes', 'Base', ({ baseBytes }) => baseBytes, formatBytes, 110),
    number('new_bytes', 'New', ({ otherBytes }) => otherBytes, formatBytes, 110),
    number('difference_bytes', 'Difference', ({ differenceBytes }) => differenceBytes, signedBytes, 120),
    number('base_allocations', 'Allocations, base', ({ baseAllocations }) => baseAllocations, significant, 150),
    number('new_allocations', 'Allocations, new', ({ otherAllocations }) => otherAllocations, significant, 150),
  ];
  return (
    <div class="ss-compare-tab">
      <p>
        At the highest peak of a device: {formatBytes(sum(({ baseBytes }) => baseBytes))} in the base,{' '}
        {formatBytes(sum(({ otherBytes }) => otherBytes))} in the new run (
        {signedBytes(sum(({ differenceBytes }) => differenceBytes))}). The rows add up to the peaks. {links}.
      </p>
      <Table
        caption="Memory at the peaks"
        testId="compare-memory"
        columns={columns}
        rows={memory}
        keyOf={({ operation }) => operation}
        exportName={`${base.id}-${other.id}-memory`}
        choosable
        fit
      />
    </div>
  );
}
