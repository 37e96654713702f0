// figure.tsx: the frame of every chart: title, a table of the same values, and the legend.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { ReportTable as Data } from '../model/report.ts';
import { ReportTable } from './report-table.tsx';

export interface LegendEntry {
  readonly label: string;
  /** CSS colour. */
  readonly colour: string;
  /** Limits the chart to the entry, or lifts that limit. */
  readonly onChoose?: () => void;
}

export function Figure(props: {
  readonly title: string;
  readonly testId: string;
  readonly data: Data;
  readonly legend?: readonly LegendEntry[];
  readonly note?: string | undefined;
  readonly tools?: ComponentChildren;
  readonly children: ComponentChildren;
}): JSX.Element {
  const [asTable, setAsTable] = useState(false);
  return (
    <figure class="ss-figure" aria-label={props.title} data-testid={`chart-${props.testId}`}>
      <div class="ss-figure-head">
        <h2>{props.title}</h2>
        {props.note === undefined ? undefined : <span class="ss-quiet">{props.note}</span>}
        <span class="ss-grow" />
        {props.tools}
        <button
          type="button"
          class="ss-button ss-small ss-ghost"
          aria-pressed={asTable}
          onClick={() => setAsTable(!asTable)}
        >
          {asTable ? 'Show as chart' : 'Show as table'}
        </button>
      </div>
      {asTable ? (
        <div class="ss-figure-table">
          <ReportTable caption={props.title} table={props.data} exportName={props.testId} plain />
        </div>
      ) : (
        props.children
      )}
      {asTable || props.legend === undefined ? undefined : <Legend entries={props.legend} />}
    </figure>
  );
}

export const Legend = ({ entries }: { readonly entries: readonly LegendEntry[] }): JSX.Element => (
  <ul class="ss-key">
    {entries.map((entry) => (
      <li key={entry.label}>
        <i style={{ background: entry.colour }} />
        {entry.onChoose === undefined ? (
          <span class="ss-ellipsis" title={entry.label}>
            {entry.label}
          </span>
        ) : (
          <button type="button" class="ss-link" title={`Only ${entry.label}; again: all`} onClick={entry.onChoose}>
            {entry.label}
          </button>
        )}
      </li>
    ))}
  </ul>
);

/** Returns the width of an element and updates it. */
export function useWidth<E extends HTMLElement>(): readonly [{ current: E | null }, number] {
  const element = useRef<E>(null);
  const [widthPx, setWidthPx] = useState(0);
  useEffect(() => {
    const box = element.current;
    if (box === null) return;
    const measure = () => setWidthPx(box.clientWidth);
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(box);
    return () => watcher.disconnect();
  }, []);
  return [element, widthPx];
}
