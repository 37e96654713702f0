// dialog.tsx: a modal dialog with the browser's own element, which traps and restores the focus.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { IconButton } from './icon.tsx';

export function Dialog(props: {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
  readonly class?: string;
  /** Without a visible heading; the title is still its accessible name. */
  readonly bare?: boolean;
}): JSX.Element {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal?.();
    return () => dialog?.close?.();
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it; the click is on the backdrop
    <dialog
      ref={element}
      aria-label={props.title}
      class={`ss-dialog ${props.class ?? ''}`}
      onCancel={(event) => {
        event.preventDefault();
        props.onClose();
      }}
      onClick={(event) => {
        if (event.target === element.current) props.onClose();
      }}
    >
      {props.bare === true ? undefined : (
        <header class="ss-dialog-head">
          <h2>{props.title}</h2>
          <IconButton icon="close" label="Close" onClick={props.onClose} />
        </header>
      )}
      <div class="ss-dialog-body">{props.children}</div>
    </dialog>
  );
}
