// combobox.tsx: a text field with a filtered list. Follows the ARIA combobox pattern.
import type { JSX } from 'preact';
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Icon } from './icon.tsx';

export interface Option {
  readonly id: string;
  readonly label: string;
  readonly detail?: string | undefined;
  readonly group?: string | undefined;
  /** Additional search text. */
  readonly search?: string | undefined;
  readonly badges?: readonly string[] | undefined;
  /** Shown in grey; can still be chosen. */
  readonly muted?: boolean | undefined;
  readonly selected?: boolean | undefined;
}

export interface ComboboxProps {
  readonly label: string;
  /** Text of the closed field. */
  readonly text: string;
  readonly options: readonly Option[];
  readonly onChoose: (id: string) => void;
  /** Stays open after a choice. */
  readonly multiple?: boolean;
  readonly disabled?: boolean;
  readonly hideLabel?: boolean;
  readonly placeholder?: string;
  readonly class?: string;
}

/** Filters options: exact matches first, then matches at the start, then the rest, each in the given order. Pure. */
export function filterOptions(options: readonly Option[], text: string): readonly Option[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === '') return options;
  const rank = (option: Option): number => {
    const words = [option.label, ...(option.search ?? '').split(' '), option.detail ?? ''].map((word) =>
      word.toLowerCase(),
    );
    if (words.includes(wanted)) return 0;
    if (words.some((word) => word.startsWith(wanted))) return 1;
    return words.some((word) => word.includes(wanted)) ? 2 : 3;
  };
  const ranked = options.map((option, at) => ({ option, at, rank: rank(option) })).filter((item) => item.rank < 3);
  return ranked.sort((a, b) => a.rank - b.rank || a.at - b.at).map((item) => item.option);
}

export function Combobox(props: ComboboxProps): JSX.Element {
  const id = useId();
  const field = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const [open, setOpen] = useState(false);
  const [typed, setTyped] = useState<string | undefined>(undefined);
  const [active, setActive] = useState(0);
  /** The list has just opened: scrolls the chosen option to the middle. */
  const isFresh = useRef(true);
  const shown = open ? filterOptions(props.options, typed ?? '') : [];

  const close = () => {
    setOpen(false);
    setTyped(undefined);
  };
  const show = () => {
    if (props.disabled === true || open) return;
    setOpen(true);
    setActive(
      Math.max(
        0,
        props.options.findIndex((option) => option.selected === true),
      ),
    );
  };
  const choose = (option: Option | undefined) => {
    if (option === undefined) return;
    props.onChoose(option.id);
    if (props.multiple !== true) {
      close();
      field.current?.focus();
    }
  };

  useLayoutEffect(() => {
    const popup = list.current;
    const anchor = field.current?.getBoundingClientRect();
    if (!open || popup === null || anchor === undefined) return;
    const width = Math.max(anchor.width, 288);
    popup.style.left = `${Math.max(8, Math.min(anchor.left, innerWidth - width - 8))}px`;
    popup.style.top = `${anchor.bottom + 4}px`;
    popup.style.width = `${width}px`;
    popup.style.maxHeight = `${Math.max(120, Math.min(420, innerHeight - anchor.bottom - 16))}px`;
  }, [open]);

  useEffect(() => {
    const option = list.current?.querySelector('[data-active="true"]');
    option?.scrollIntoView({ block: isFresh.current ? 'center' : 'nearest' });
    isFresh.current = !open;
  }, [active, open]);

  useEffect(() => {
    if (!open) return;
    const onDown = (event: PointerEvent) => {
      const target = event.target;
      if (target instanceof Node && !list.current?.contains(target) && target !== field.current) close();
    };
    addEventListener('pointerdown', onDown, true);
    return () => removeEventListener('pointerdown', onDown, true);
  });

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      if (!open) show();
      else setActive((active + (event.key === 'ArrowDown' ? 1 : shown.length - 1)) % Math.max(1, shown.length));
    } else if (event.key === 'Enter') {
      event.preventDefault();
      if (open) choose(shown[active]);
      else show();
    } else if (event.key === 'Escape' && open) {
      event.preventDefault();
      event.stopPropagation();
      close();
    } else if (event.key === 'Tab') close();
  };

  let group: string | undefined;
  return (
    <div class={`ss-combo ${props.class ?? ''}`}>
      <label class={props.hideLabel === true ? 'ss-hidden' : 'ss-combo-label'} for={`${id}-field`}>
        {props.label}
      </label>
      <div class="ss-combo-box">
        <input
          ref={field}
          id={`${id}-field`}
          type="text"
          role="combobox"
          autocomplete="off"
          spellcheck={false}
          aria-expanded={open}
          aria-controls={`${id}-list`}
          aria-autocomplete="list"
          {...(open && shown[active] !== undefined ? { 'aria-activedescendant': `${id}-${active}` } : {})}
          disabled={props.disabled ?? false}
          placeholder={open ? props.text : (props.placeholder ?? '')}
          title={props.text}
          value={typed ?? (open ? '' : props.text)}
          onClick={show}
          onInput={(event) => {
            setTyped(event.currentTarget.value);
            setActive(0);
            setOpen(true);
          }}
          onKeyDown={onKeyDown}
          onBlur={(event) => {
            if (!(event.relatedTarget instanceof Node) || list.current?.contains(event.relatedTarget) !== true) close();
          }}
        />
        <Icon name="chevronDown" />
      </div>
      <div
        ref={list}
        id={`${id}-list`}
        role="listbox"
        aria-label={props.label}
        aria-multiselectable={props.multiple ?? false}
        class="ss-combo-list"
        hidden={!open}
      >
        {shown.map((option, at) => {
          const heading = option.group !== group ? option.group : undefined;
          group = option.group;
          return (
            <>
              {heading === undefined ? undefined : (
                <div class="ss-combo-group" role="presentation">
                  {heading}
                </div>
              )}
              {/* biome-ignore lint/a11y/useKeyWithClickEvents: keys are handled by the field, as the combobox pattern asks */}
              {/* biome-ignore lint/a11y/useFocusableInteractive: options are active descendants of the field */}
              <div
                key={option.id}
                id={`${id}-${at}`}
                role="option"
                aria-selected={option.selected ?? false}
                data-active={at === active}
                class={`ss-combo-option ${option.muted === true ? 'ss-muted' : ''}`}
                onPointerDown={(event) => event.preventDefault()}
                onPointerMove={() => setActive(at)}
                onClick={() => choose(option)}
              >
                <span class="ss-combo-tick" aria-hidden="true">
                  {option.selected === true ? '✓' : ''}
                </span>
                <span class="ss-combo-text">
                  <span class="ss-ellipsis">{option.label}</span>
                  {option.detail === undefined ? undefined : <small class="ss-ellipsis">{option.detail}</small>}
                </span>
                {option.badges?.map((badge) => (
                  <span key={badge} class="ss-badge">
                    {badge}
                  </span>
                ))}
              </div>
            </>
          );
        })}
        {open && shown.length === 0 ? <div class="ss-combo-none">Nothing matches “{typed}”.</div> : undefined}
      </div>
    </div>
  );
}
