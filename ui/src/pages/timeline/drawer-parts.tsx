// drawer-parts.tsx: what several tabs of the drawer show in the same way.
import type { ComponentChildren, JSX } from 'preact';
import { exactTime, formatDuration } from '../../base/format.ts';
import type { EmptyReason } from '../../widgets/states.tsx';
import type { TableColumn } from '../../widgets/table.tsx';

/** Why a tab has nothing to show, and what to do. */
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

/** A duration, rounded; exact when pointed at. */
export function Exact({ ns }: { readonly ns: number }): JSX.Element {
  return (
    <span title={exactTime(ns)} data-ns={ns}>
      {formatDuration(ns)}
    </span>
  );
}

type Width = { readonly width?: string };

/** A column of exact begins. */
export const startColumn = <Row,>(startNs: (row: Row) => number, width: Width = {}): TableColumn<Row> => ({
  id: 'start',
  title: 'Start',
  numeric: true,
  ...width,
  value: startNs,
  cell: (row) => exactTime(startNs(row)),
});

/** A column of lengths; what has none is an instant. */
export const durationColumn = <Row,>(durNs: (row: Row) => number, width: Width = {}): TableColumn<Row> => ({
  id: 'duration',
  title: 'Duration',
  numeric: true,
  ...width,
  value: durNs,
  cell: (row) => (durNs(row) === 0 ? 'instant' : <Exact ns={durNs(row)} />),
});

/** A column of tracks by name. */
export const trackColumn = <Row,>(name: (row: Row) => string, width: Width = {}): TableColumn<Row> => ({
  id: 'track',
  title: 'Track',
  ...width,
  value: name,
});
