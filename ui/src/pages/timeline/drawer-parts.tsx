// drawer-parts.tsx: common parts of the drawer's tabs.
import type { ComponentChildren, JSX } from 'preact';
import { exactTime, formatDuration } from '../../base/format.ts';
import type { EmptyReason } from '../../widgets/states.tsx';
import type { TableColumn } from '../../widgets/table.tsx';

/** Why a tab is empty, and what to do. */
export function DrawerEmpty(props: {
  readonly reason: EmptyReason;
  readonly title: string;
  readonly children?: ComponentChildren;
}): JSX.Element {
  return (
    <div class="ss-drawer-empty" data-testid="empty-state" data-reason={props.reason}>
      <p>
        <strong>{props.title}</strong> {props.children}
      </p>
    </div>
  );
}

/** A rounded duration; its tooltip is exact. */
export function Exact({ ns }: { readonly ns: number }): JSX.Element {
  return (
    <span title={exactTime(ns)} data-ns={ns}>
      {formatDuration(ns)}
    </span>
  );
}

type Width = { readonly width?: string };

/** Returns a column of exact start times. */
export const startColumn = <Row,>(startNs: (row: Row) => number, width: Width = {}): TableColumn<Row> => ({
  id: 'start',
  title: 'Start',
  numeric: true,
  ...width,
  value: startNs,
  cell: (row) => exactTime(startNs(row)),
});

/** Returns a column of durations; instants have none. */
export const durationColumn = <Row,>(durNs: (row: Row) => number, width: Width = {}): TableColumn<Row> => ({
  id: 'duration',
  title: 'Duration',
  numeric: true,
  ...width,
  value: durNs,
  cell: (row) => (durNs(row) === 0 ? 'instant' : <Exact ns={durNs(row)} />),
});

/** Returns a column of track names. */
export const trackColumn = <Row,>(name: (row: Row) => string, width: Width = {}): TableColumn<Row> => ({
  id: 'track',
  title: 'Track',
  ...width,
  value: name,
});
