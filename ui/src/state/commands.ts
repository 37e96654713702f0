// commands.ts: available commands by id. Pages register theirs while they are shown; keys and the palette run them.
import { signal } from '@preact/signals';

export type Phase = 'down' | 'up';

export interface Command {
  readonly id: string;
  /** Title in the palette; commands without a title are for keys only. */
  readonly title: string | undefined;
  readonly run: (phase: Phase) => void;
}

export const commands = signal<ReadonlyMap<string, Command>>(new Map());

/** Adds commands until the returned function is called. */
export function register(list: readonly Command[]): () => void {
  commands.value = new Map([...commands.peek(), ...list.map((command) => [command.id, command] as const)]);
  return () => {
    const rest = new Map(commands.peek());
    for (const command of list) if (rest.get(command.id) === command) rest.delete(command.id);
    commands.value = rest;
  };
}

export const run = (id: string, phase: Phase = 'down'): boolean => {
  const command = commands.peek().get(id);
  command?.run(phase);
  return command !== undefined;
};

/** An additional entry of the palette, for example a track. */
export interface PaletteEntry {
  /** For tracks, their key. */
  readonly id?: string;
  readonly group: string;
  readonly title: string;
  readonly detail: string | undefined;
  readonly run: () => void;
}

export type PaletteSource = () => readonly PaletteEntry[];

export const paletteSources = signal<readonly PaletteSource[]>([]);

export function addPaletteSource(source: PaletteSource): () => void {
  paletteSources.value = [...paletteSources.peek(), source];
  return () => {
    paletteSources.value = paletteSources.peek().filter((other) => other !== source);
  };
}

/** One line for screen readers, which is also shown for a moment. */
export const notice = signal<{ readonly text: string; readonly at: number }>({ text: '', at: 0 });

export function announce(text: string): void {
  notice.value = { text, at: notice.peek().at + 1 };
}

/** Status of the search box; the current page sets it. */
export interface SearchStatus {
  readonly total: number | undefined;
  /** Index of the match; -1: none chosen yet. */
  readonly index: number;
  readonly busy: boolean;
  readonly problem: string | undefined;
  /** Number of matches by track, most first. */
  readonly byTrack: readonly (readonly [number, number])[];
}

export const NO_SEARCH: SearchStatus = { total: undefined, index: -1, busy: false, problem: undefined, byTrack: [] };

export const searchStatus = signal<SearchStatus>(NO_SEARCH);

export type Overlay = 'palette' | 'tracks' | 'help' | 'warnings' | 'share' | 'capture' | undefined;

/** The open dialog; at most one is open. */
export const overlay = signal<Overlay>(undefined);
