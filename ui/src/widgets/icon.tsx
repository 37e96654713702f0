// icon.tsx: small line drawings. Decorative: the control around them has the accessible name.
import type { JSX } from 'preact';

const PATHS = {
  chevronRight: 'M6 4l4 4-4 4',
  chevronDown: 'M4 6l4 4 4-4',
  pin: 'M8 10v4M5 10h6l-1-3V3h1V2H5v1h1v4z',
  hide: 'M2 8s2.2-4 6-4 6 4 6 4-2.2 4-6 4-6-4-6-4zM2.5 13.5l11-11',
  up: 'M8 12V4M4.5 7.5L8 4l3.5 3.5',
  down: 'M8 4v8M4.5 8.5L8 12l3.5-3.5',
  only: 'M8 3v2M8 11v2M3 8h2M11 8h2M8 6.2a1.8 1.8 0 100 3.6 1.8 1.8 0 000-3.6z',
  collapse: 'M4 3l4 3 4-3M4 13l4-3 4 3',
  close: 'M4 4l8 8M12 4l-8 8',
  search: 'M7 2.5a4.5 4.5 0 100 9 4.5 4.5 0 000-9zM10.5 10.5L14 14',
  share: 'M6.5 9.5l3-3M7 5l1.5-1.5a2.5 2.5 0 013.5 3.5L10.5 8.5M9 11l-1.5 1.5A2.5 2.5 0 014 9l1.5-1.5',
  sun: 'M8 5a3 3 0 100 6 3 3 0 000-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1',
  moon: 'M13 9.5A5.5 5.5 0 116.5 3 4.5 4.5 0 0013 9.5z',
  half: 'M8 2a6 6 0 100 12A6 6 0 008 2zM8 2v12',
  warning: 'M8 2.5L14.5 13.5h-13zM8 6.5v3.2M8 11.6v.4',
  record: 'M8 3a5 5 0 100 10A5 5 0 008 3zM8 6.2a1.8 1.8 0 100 3.6 1.8 1.8 0 000-3.6z',
  open: 'M2 12.5V4h4l1.5 1.5H14v7z',
  plus: 'M8 3v10M3 8h10',
  minus: 'M3 8h10',
  rail: 'M2.5 3h11v10h-11zM6.5 3v10',
  runs: 'M3 4h10M3 8h10M3 12h10',
  overview: 'M2.5 11.5a5.5 5.5 0 1111 0M8 11.5l2.5-4',
  timeline: 'M2 4.5h6M5 8h8M3.5 11.5h5',
  'critical-path': 'M2 4h4v4h5v4h3M3.5 12h3M10 4h3.5',
  ops: 'M2.5 3.5h2M6.5 3.5h7M2.5 8h2M6.5 8h5M2.5 12.5h2M6.5 12.5h3',
  calls: 'M2.5 3.5h11M2.5 6.5h8M2.5 9.5h5M2.5 12.5h3',
  kernels: 'M4.5 4.5h7v7h-7zM6.5 2v2.5M9.5 2v2.5M6.5 11.5V14M9.5 11.5V14M2 6.5h2.5M2 9.5h2.5M11.5 6.5H14M11.5 9.5H14',
  memory: 'M2 13h12M2 11l3-1 2.5-5L10 9l4-2',
  'hlo-memory': 'M2 14h12M2 4h5v3H2zM5 7h7v3H5zM9 3h5v4M3 10h4v4',
  graph: 'M5.5 2h5v3h-5zM2 11h4.5v3H2zM9.5 11H14v3H9.5zM8 5v3M4 11V8h8v3',
  input: 'M2 8h8M7 5l3 3-3 3M12.5 3v10',
  roofline: 'M2.5 2v11.5H14M3 11.5L8.5 5H14M10.5 8.2v.1M7.5 9.8v.1M12.5 10.5v.1',
  ranks: 'M3 13V9M6.5 13V5M10 13V7.5M13.5 13V3',
  sql: 'M2.5 4c0-1.1 2.5-2 5.5-2s5.5.9 5.5 2-2.5 2-5.5 2-5.5-.9-5.5-2zM2.5 4v8c0 1.1 2.5 2 5.5 2s5.5-.9 5.5-2V4M2.5 8c0 1.1 2.5 2 5.5 2s5.5-.9 5.5-2',
  compare: 'M2 3.5h8M2 6h5M2 10h10M2 12.5h6M13.5 2.5v4M13.5 9v4',
  reports: 'M4 2h5.5L12.5 5v9H4zM6 8h4.5M6 11h4.5',
  copy: 'M5.5 5.5V3h7.5v7.5h-2.5M3 5.5h7.5V13H3z',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { readonly name: IconName }): JSX.Element {
  return (
    <svg class="ss-icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path
        d={PATHS[name]}
        fill="none"
        stroke="currentColor"
        stroke-width="1.5"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}

export function IconButton(props: {
  readonly icon: IconName;
  readonly label: string;
  readonly onClick: (event: MouseEvent) => void;
  readonly pressed?: boolean;
  readonly class?: string;
  readonly tabIndex?: number;
}): JSX.Element {
  return (
    <button
      type="button"
      class={`ss-icon-button ${props.class ?? ''}`}
      aria-label={props.label}
      title={props.label}
      tabIndex={props.tabIndex ?? 0}
      {...(props.pressed === undefined ? {} : { 'aria-pressed': props.pressed })}
      onClick={props.onClick}
    >
      <Icon name={props.icon} />
    </button>
  );
}
