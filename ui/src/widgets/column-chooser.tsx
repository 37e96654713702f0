// column-chooser.tsx: the button above a table with the number of visible columns, and the list to choose them.
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

const MARGIN_PX = 8;

export function ColumnChooser({
  columns,
  onShow,
  onReset,
}: {
  readonly columns: readonly {
    readonly id: string;
    readonly title: string;
    readonly isShown: boolean;
    readonly isFixed: boolean;
  }[];
  readonly onShow: (id: string, isShown: boolean) => void;
  /** Resets to the columns that fit, with default widths. */
  readonly onReset: (() => void) | undefined;
}): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!isOpen) return;
    box.current?.querySelector('input')?.focus();
    const onPointer = (event: PointerEvent) => {
      if (!(event.target instanceof Node) || box.current?.contains(event.target) !== true) setOpen(false);
    };
    addEventListener('pointerdown', onPointer, true);
    return () => removeEventListener('pointerdown', onPointer, true);
  }, [isOpen]);
  // Positions the list below the button, within the window.
  useLayoutEffect(() => {
    const anchor = button.current?.getBoundingClientRect();
    const popup = list.current;
    if (!isOpen || anchor === undefined || popup === null) return;
    const left = Math.max(MARGIN_PX, Math.min(anchor.left, innerWidth - popup.offsetWidth - MARGIN_PX));
    popup.style.left = `${left}px`;
    popup.style.top = `${anchor.bottom + 4}px`;
    popup.style.maxHeight = `${Math.max(120, Math.min(420, innerHeight - anchor.bottom - 2 * MARGIN_PX))}px`;
  }, [isOpen]);
  const count = columns.filter(({ isShown }) => isShown).length;
  return (
    <div
      class="ss-columns-box"
      ref={box}
      onKeyDown={(event) => {
        if (event.key !== 'Escape' || !isOpen) return;
        event.preventDefault();
        event.stopPropagation();
        setOpen(false);
        button.current?.focus();
      }}
    >
      <button
        ref={button}
        type="button"
        class="ss-button ss-small"
        data-testid="columns"
        data-shown={count}
        data-all={columns.length}
        aria-expanded={isOpen}
        title="Choose the columns of this table"
        onClick={() => setOpen(!isOpen)}
      >
        {count === columns.length ? 'Columns' : `Columns: ${count} of ${columns.length}`}
      </button>
      {isOpen ? (
        <div ref={list} class="ss-columns-list" role="group" aria-label="Columns">
          {columns.map(({ id, title, isShown, isFixed }) => (
            <label key={id} class="ss-check">
              <input
                type="checkbox"
                checked={isShown}
                disabled={isFixed}
                onChange={(event) => onShow(id, event.currentTarget.checked)}
              />
              {title}
            </label>
          ))}
          {onReset === undefined ? undefined : (
            <button type="button" class="ss-link" onClick={onReset}>
              Reset columns
            </button>
          )}
        </div>
      ) : undefined}
    </div>
  );
}
