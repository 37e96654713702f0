// lists.ts: the live run list and the opened run, as every page sees them. Filled by `app`.
import { signal } from '@preact/signals';
import type { ListedRuns, RunDetail, RunImporting } from '../model/run.ts';

export interface RunList extends ListedRuns {
  readonly loaded: boolean;
}

export const runList = signal<RunList>({ runs: [], notReadable: undefined, loaded: false });

/** Import progress by run, as the event stream tells it. */
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

/** Ids of runs taken off the list by the user in this browser tab. */
export const dismissedRuns = signal<ReadonlySet<string>>(new Set());
