// links.tsx: links from any page to the evidence of a value: events, steps, names and ranges in the timeline, other
// pages.
import type { ComponentChildren, JSX } from 'preact';
import { toProblem } from '../../api/client.ts';
import { fetchEvent } from '../../api/server.ts';
import { below } from '../../base/place.ts';
import type { RunDetail } from '../../model/run.ts';
import { fitRange } from '../../model/viewport.ts';
import { EMPTY_VIEW, formatAddress, type View } from '../../state/address.ts';
import { announce } from '../../state/commands.ts';
import { goTo, type Store } from '../../state/store.ts';
import type { EventLink } from '../../widgets/report-table.tsx';

const plainClick = (event: MouseEvent): boolean =>
  !(event.ctrlKey || event.metaKey || event.shiftKey) && event.button === 0;

/** A link to a page of the run with only this view. */
export function PageLink(props: {
  readonly store: Store;
  readonly run: RunDetail;
  readonly tool: string;
  readonly view?: Partial<View>;
  readonly class?: string;
  readonly title?: string;
  /** Opens the page in place of the link, for a view that must be computed first. */
  readonly onFollow?: () => void;
  readonly children: ComponentChildren;
}): JSX.Element {
  const place = { kind: 'tool', run: props.run.id, tool: props.tool } as const;
  return (
    <a
      class={props.class ?? ''}
      title={props.title}
      href={below(formatAddress({ place, view: { ...EMPTY_VIEW, ...props.view } }))}
      onClick={(event) => {
        if (!plainClick(event)) return;
        event.preventDefault();
        event.stopPropagation();
        if (props.onFollow === undefined) goTo(props.store, place, props.view ?? {});
        else props.onFollow();
      }}
    >
      {props.children}
    </a>
  );
}

/** Opens the timeline around an event and selects it. */
export async function openEvent(store: Store, run: RunDetail, id: number): Promise<void> {
  try {
    const event = await fetchEvent(run.id, id, run.contentHash);
    const range = fitRange(event.startNs, event.startNs + Math.max(event.durNs, 1), 0.2, {
      startNs: 0,
      endNs: run.durationNs,
    });
    goTo(store, { kind: 'tool', run: run.id, tool: 'timeline' }, { selected: id, range, tab: 'details' });
  } catch (error) {
    announce(toProblem(error).detail);
  }
}

export const eventLinkOf =
  (store: Store, run: RunDetail): EventLink =>
  (id, text) => (
    <a
      href={below(
        formatAddress({
          place: { kind: 'tool', run: run.id, tool: 'timeline' },
          view: { ...EMPTY_VIEW, selected: id },
        }),
      )}
      title="Show this event in the timeline"
      onClick={(event) => {
        if (!plainClick(event)) return;
        event.preventDefault();
        event.stopPropagation();
        void openEvent(store, run, id);
      }}
    >
      {text}
    </a>
  );

/** Returns the timeline view that highlights every event of this name. */
export const nameView = (name: string): Partial<View> => ({
  query: `"${name}"`,
  match: undefined,
  selected: undefined,
  range: undefined,
});

const escaped = (text: string): string => text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&');

/** Returns the timeline view that highlights every event of these names. */
export const namesView = (names: readonly string[]): Partial<View> => {
  const [only] = names;
  return names.length === 1 && only !== undefined
    ? nameView(only)
    : { ...nameView(''), query: `/^(${names.map(escaped).join('|')})$/` };
};

/** Returns the timeline view that is limited to a step. */
export const stepView = (step: number): Partial<View> => ({
  steps: { from: step, to: step },
  range: undefined,
  area: undefined,
  selected: undefined,
});
