// tabs.tsx: a row of tabs; arrow keys move. The page provides the panel.
import type { JSX } from 'preact';

export interface Tab {
  readonly id: string;
  readonly label: string;
  readonly count?: string | undefined;
}

export function Tabs(props: {
  readonly label: string;
  readonly tabs: readonly Tab[];
  readonly active: string;
  readonly panelId: string;
  readonly onChoose: (id: string) => void;
}): JSX.Element {
  const move = (event: KeyboardEvent, at: number) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    event.stopPropagation();
    const next = props.tabs[(at + step + props.tabs.length) % props.tabs.length];
    if (next === undefined) return;
    props.onChoose(next.id);
    const row = event.currentTarget instanceof HTMLElement ? event.currentTarget.parentElement : undefined;
    requestAnimationFrame(() => row?.querySelector<HTMLElement>('[aria-selected="true"]')?.focus());
  };
  return (
    <div class="ss-tabs" role="tablist" aria-label={props.label}>
      {props.tabs.map((tab, at) => (
        <button
          key={tab.id}
          type="button"
          role="tab"
          id={`${props.panelId}-tab-${tab.id}`}
          aria-selected={tab.id === props.active}
          aria-controls={props.panelId}
          tabIndex={tab.id === props.active ? 0 : -1}
          onClick={() => props.onChoose(tab.id)}
          onKeyDown={(event) => move(event, at)}
        >
          {tab.label}
          {tab.count === undefined ? undefined : (
            <span class="ss-tab-count" aria-hidden="true">
              {tab.count}
            </span>
          )}
        </button>
      ))}
    </div>
  );
}
