// kind.ts: kinds of slices, by the numbers of the HTTP interface.
import { KIND_LABELS } from './generated.ts';

export const KIND_COUNT = KIND_LABELS.length;

export const kindLabel = (kind: number): string => KIND_LABELS[kind] ?? 'other';

/** Returns the number of a label; 0 for labels of newer servers. */
export const kindNumber = (label: string): number => Math.max(0, KIND_LABELS.indexOf(label));
