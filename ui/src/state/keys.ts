// keys.ts: the keyboard map as data. Pure: converts a key event and a scope to a command id.
//
// Letters follow the physical position (`event.code`), so that WASD works on every layout; other characters follow the
// typed text.

import { TOOLS } from '../model/generated.ts';

export interface KeyLike {
  readonly key: string;
  readonly code: string;
  readonly ctrlKey: boolean;
  readonly metaKey: boolean;
  readonly shiftKey: boolean;
  readonly altKey: boolean;
}

export type Scope = 'timeline' | 'anywhere';

export interface Binding {
  readonly command: string;
  readonly scope: Scope;
  /** Physical key, or the typed character. */
  readonly code?: string;
  readonly sign?: string;
  readonly shift?: boolean;
  /** Ctrl, or Cmd on Macs. */
  readonly mod?: boolean;
  /** The command also receives the key's release. */
  readonly hold?: boolean;
  /** Also works while typing in a field. */
  readonly inFields?: boolean;
}

const timeline = (command: string, code: string, more: Partial<Binding> = {}): Binding => ({
  command,
  scope: 'timeline',
  code,
  ...more,
});
const anywhere = (command: string, more: Partial<Binding>): Binding => ({ command, scope: 'anywhere', ...more });

export const BINDINGS: readonly Binding[] = [
  timeline('zoom-in', 'KeyW', { hold: true }),
  timeline('zoom-out', 'KeyS', { hold: true }),
  timeline('zoom-in', '', { sign: '+', hold: true }),
  timeline('zoom-in', '', { sign: '=', hold: true }),
  timeline('zoom-out', '', { sign: '-', hold: true }),
  timeline('pan-left', 'KeyA', { hold: true }),
  timeline('pan-right', 'KeyD', { hold: true }),
  timeline('pan-left', 'ArrowLeft', { hold: true }),
  timeline('pan-right', 'ArrowRight', { hold: true }),
  timeline('page-left', 'KeyA', { shift: true }),
  timeline('page-right', 'KeyD', { shift: true }),
  timeline('track-previous', 'ArrowUp'),
  timeline('track-next', 'ArrowDown'),
  timeline('step-previous', '', { sign: '<' }),
  timeline('step-next', '', { sign: '>' }),
  timeline('event-previous', '', { sign: ',' }),
  timeline('event-next', '', { sign: '.' }),
  timeline('flow-back', '', { sign: '[' }),
  timeline('flow-forward', '', { sign: ']' }),
  timeline('focus-selection', 'KeyF'),
  timeline('fit', '', { sign: '0' }),
  timeline('fit', 'KeyZ'),
  timeline('selection-to-area', 'KeyR'),
  timeline('mark', 'KeyM'),
  timeline('note', 'KeyM', { shift: true }),
  timeline('pin', 'KeyP'),
  timeline('hide', 'KeyH'),
  timeline('search-next', 'KeyN'),
  timeline('search-previous', 'KeyN', { shift: true }),
  timeline('collapse', 'KeyC'),
  timeline('critical-path', 'KeyX'),
  timeline('go-start', 'Home'),
  timeline('go-end', 'End'),
  timeline('one-mode', 'Digit1'),
  timeline('one-mode', 'Digit2'),
  timeline('one-mode', 'Digit3'),
  timeline('one-mode', 'Digit4'),
  timeline('copy', 'KeyC', { mod: true }),
  anywhere('search', { sign: '/' }),
  anywhere('palette', { code: 'KeyK', mod: true, inFields: true }),
  anywhere('go-to-track', { code: 'KeyP', mod: true, inFields: true }),
  anywhere('help', { sign: '?' }),
  anywhere('drawer', { code: 'KeyQ' }),
  anywhere('rail', { sign: '\\' }),
  anywhere('escape', { code: 'Escape', inFields: true }),
  anywhere('chord', { code: 'KeyG' }),
  anywhere('theme', { code: 'KeyT' }),
  anywhere('copy-link', { code: 'KeyL', mod: true, inFields: true }),
];

/** Returns the binding of a key, timeline bindings first. `undefined`: the browser handles the key. */
export function bindingOf(event: KeyLike, scope: Scope, inField: boolean): Binding | undefined {
  const mod = event.ctrlKey || event.metaKey;
  if (event.altKey) return undefined;
  const fits = (binding: Binding): boolean => {
    if (binding.scope === 'timeline' && scope !== 'timeline') return false;
    if ((binding.mod ?? false) !== mod) return false;
    if (inField && binding.inFields !== true) return false;
    if (binding.sign !== undefined) return event.key === binding.sign;
    return event.code === binding.code && (binding.shift ?? false) === event.shiftKey;
  };
  return (
    BINDINGS.find((binding) => binding.scope === 'timeline' && fits(binding)) ??
    BINDINGS.find((binding) => binding.scope === 'anywhere' && fits(binding))
  );
}

/** Returns the lines of the keyboard help: keys, description. `letter` converts a physical key to the user's letter. */
export function helpLines(letter: (code: string) => string): {
  readonly timeline: readonly (readonly [string, string])[];
  readonly anywhere: readonly (readonly [string, string])[];
} {
  const [w, s, a, d] = ['KeyW', 'KeyS', 'KeyA', 'KeyD'].map(letter);
  return {
    timeline: [
      [`${w} / ${s}, + / −`, 'zoom in / out at the pointer (hold to keep going)'],
      [`${a} / ${d}, ← / →`, 'pan by a quarter'],
      [`Shift+${a} / Shift+${d}`, 'pan by a full window'],
      ['↑ / ↓', 'previous / next track'],
      [', / .', 'previous / next event on the track'],
      ['[ / ]', 'follow a link back / forward'],
      [letter('KeyF'), 'centre the selection; again: fit it'],
      [`0 or ${letter('KeyZ')}`, 'fit the whole run'],
      [letter('KeyR'), 'turn the selection into an area'],
      [`${letter('KeyM')} / Shift+${letter('KeyM')}`, 'mark / add a note'],
      [`${letter('KeyP')} / ${letter('KeyH')} / ${letter('KeyC')}`, 'pin / hide / collapse the focused track'],
      ['< / >', 'previous / next step'],
      [letter('KeyX'), 'show or hide the critical path of the step in view'],
      [`${letter('KeyN')} / Shift+${letter('KeyN')}`, 'next / previous match of the search'],
      ['Home / End', 'start / end of the run'],
      [letter('KeyQ'), 'open or close the drawer'],
      ['Ctrl/Cmd+C', 'copy the selected event'],
      ['wheel', 'scroll tracks; with Ctrl zoom, with Shift pan'],
      ['drag', 'select an area; with Space or on the ruler pan'],
      ['double click', 'fit the event'],
    ],
    anywhere: [
      ['/', 'search'],
      ['Enter / Shift+Enter', 'in search: open the first result; on the timeline next / previous match'],
      ['Ctrl/Cmd+K', 'commands, tools, runs, tracks'],
      ['Ctrl/Cmd+P', 'go to a track'],
      ['?', 'this help'],
      ['\\', 'open or close the rail'],
      ['Esc', 'close; then clear the selection; then the search'],
      [
        `${letter('KeyG')} then a letter`,
        `go to: ${TOOLS.filter((tool) => tool.letter !== undefined)
          .map((tool) => `${tool.letter?.toUpperCase()} ${tool.title}`)
          .join(', ')}, C Compare, Q SQL`,
      ],
      ['Ctrl/Cmd+L', 'copy the link to this view'],
      [letter('KeyT'), 'theme: light, dark, system'],
    ],
  };
}
