// kind.ts: kinds of slices. The numbers are those of the HTTP interface (`SliceKind` in stepscope-model).

/** Labels by number, as the legend shows them. */
export const KIND_LABELS: readonly string[] = [
  'other',
  'matmul, conv',
  'attention',
  'fusion',
  'element-wise, reduce',
  'copy, transfer',
  'collective',
  'host, Python',
  'input, data',
  'compile',
  'runtime, launch',
  'user label',
  'wait, sync',
];

export const KIND_COUNT = KIND_LABELS.length;

export const kindLabel = (kind: number): string => KIND_LABELS[kind] ?? 'other';

/** Returns the number of a label; 0 for labels of newer servers. */
export const kindNumber = (label: string): number => Math.max(0, KIND_LABELS.indexOf(label));
