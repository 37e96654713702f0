// legend.tsx: the legend of colours above the tracks. A selected kind stays at full strength; others are dimmed.
import { useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { Theme } from '../../base/theme.ts';
import { KIND_LABELS } from '../../model/generated.ts';
import type { Colouring } from '../../state/address.ts';
import { overlay } from '../../state/commands.ts';
import { classOfName } from '../../timeline/batch.ts';
import { makePalette } from '../../timeline/palette.ts';
import { IconButton } from '../../widgets/icon.tsx';
import type { Session } from './session.ts';

const COLOURING_NOTES: Readonly<Record<Exclude<Colouring, 'kind'>, string>> = {
  name: 'One colour per name, without its digits.',
  duration: 'From pale (100 ns and less) to strong (1 s and more).',
  layer: 'One colour per layer: the innermost nn.Module around an event on its track. Grey: no layer was recorded.',
  rank: 'One colour per rank. Grey: tracks without a rank.',
};

const NAMES_SHOWN = 16;
const EVENTS_READ = 4000;

interface NamedColour {
  readonly name: string;
  readonly colour: string;
}

/**
 * Returns the visible names with the largest total time, with their colours. Names that differ only in digits are
 * merged.
 */
function namesInView(session: Session, theme: Theme): readonly NamedColour[] {
  const palette = makePalette(theme);
  const totals = new Map<string, { name: string; ns: number }>();
  for (const { name, label, startNs, endNs } of session.engine.eventsInView(EVENTS_READ)) {
    const key = name.replace(/\d+/g, '');
    const known = totals.get(key);
    if (known === undefined) totals.set(key, { name: label, ns: endNs - startNs });
    else known.ns += endNs - startNs;
  }
  return [...totals]
    .sort(([, a], [, b]) => b.ns - a.ns)
    .slice(0, NAMES_SHOWN)
    .map(([key, { name }]) => ({ name, colour: palette.bars[classOfName(key)] ?? theme.muted }));
}

/** Kinds in the order of the legend: `other` is last. */
const KINDS = [...KIND_LABELS.keys()].filter((kind) => kind > 0).concat(0);

export function Legend(props: {
  readonly session: Session;
  readonly theme: Theme;
  readonly onClose: () => void;
}): JSX.Element {
  const { session, theme, onClose } = props;
  const root = useRef<HTMLDivElement>(null);
  const colouring = session.colouring.value;
  const { kind } = session.store.view;
  const names = useMemo(
    () => (colouring === 'name' ? namesInView(session, theme) : []),
    [session, theme, colouring, session.engine.stats.value.loading],
  );
  useEffect(() => {
    // After the click: the legend must not move the tracks between press and release.
    const onClick = (event: MouseEvent) => {
      const { target } = event;
      if (!(target instanceof Element) || root.current?.contains(target) || target.closest('.ss-legend-button')) return;
      onClose();
    };
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key !== 'Escape' || overlay.peek() !== undefined) return;
      event.preventDefault();
      event.stopPropagation();
      onClose();
    };
    addEventListener('click', onClick, { capture: true });
    addEventListener('keydown', onKeyDown, { capture: true });
    return () => {
      removeEventListener('click', onClick, { capture: true });
      removeEventListener('keydown', onKeyDown, { capture: true });
    };
  }, [onClose]);
  useSignalEffect(() => {
    if (overlay.value !== undefined) onClose();
  });
  return (
    <div ref={root} class="ss-legend" role="group" aria-label="Legend">
      {colouring === 'kind' ? (
        KINDS.map((item) => (
          <button
            key={item}
            type="button"
            class="ss-legend-item"
            aria-pressed={kind.value === item}
            title={kind.value === item ? 'Show all kinds' : `Show only ${KIND_LABELS[item]} at full strength`}
            onClick={() => {
              kind.value = kind.peek() === item ? undefined : item;
            }}
          >
            <i style={{ background: theme.kinds[item] ?? theme.muted }} />
            {KIND_LABELS[item]}
          </button>
        ))
      ) : (
        <>
          {names.map(({ name, colour }) => (
            <span key={name} class="ss-legend-item" title={name}>
              <i style={{ background: colour }} />
              <span class="ss-ellipsis">{name}</span>
            </span>
          ))}
          <p class="ss-quiet">{COLOURING_NOTES[colouring]}</p>
        </>
      )}
      <span class="ss-grow" />
      <IconButton icon="close" label="Close legend" onClick={onClose} />
    </div>
  );
}
