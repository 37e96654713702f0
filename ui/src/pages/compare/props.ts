// props.ts: what the parts of the page get.
import type { ReadonlySignal } from '@preact/signals';
import type { CompareQuery } from '../../api/compare.ts';
import type { Theme } from '../../base/theme.ts';
import type { Comparison } from '../../model/compare.ts';
import type { RunDetail } from '../../model/run.ts';
import type { Store } from '../../state/store.ts';

export interface ComparePageProps {
  readonly store: Store;
  readonly theme: ReadonlySignal<Theme>;
}

/** Two open runs with what the server says about them. */
export interface Compared extends ComparePageProps {
  readonly base: RunDetail;
  readonly other: RunDetail;
  readonly comparison: Comparison;
  /** The request that it answers, and hashes of the runs' content. */
  readonly ask: CompareQuery;
  readonly content: string;
}
