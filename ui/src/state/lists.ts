// lists.ts: the live run list and the opened run for all pages. `app` writes them.
import { signal } from '@preact/signals';
import type { ListedRuns, RunDetail, RunImporting } from '../model/run.ts';

export interface RunList extends ListedRuns {
  readonly loaded: boolean;
}

export const runList = signal<RunList>({ runs: [], notReadable: undefined, loaded: false });

/** Import progress by run, from the event stream. */
export const importProgress = signal<ReadonlyMap<string, { readonly phase: string; readonly done: number }>>(new Map());

export type OpenedRun =
  | { readonly kind: 'none' }
  | { readonly kind: 'opening'; readonly id: string; readonly importing: RunImporting | undefined }
  | { readonly kind: 'open'; readonly id: string; readonly run: RunDetail }
  | {
      readonly kind: 'failed';
      readonly id: string;
      readonly title: string;
      readonly detail: string;
      readonly where: string | undefined;
      readonly hint: string | undefined;
    };

export const openedRun = signal<OpenedRun>({ kind: 'none' });

/** Ids of runs that the user removed from the list in this browser tab. */
export const dismissedRuns = signal<ReadonlySet<string>>(new Set());
