import { expect, it } from 'vitest';
import { piecesOf, piecesOfReport, piecesWith } from './evidence.ts';
import type { Cell, Report, ReportColumn, Unit } from './report.ts';

const column = (key: string, unit: Unit): ReportColumn => ({ key, title: key, unit });
const report = (fields: Partial<Report>): Report => ({
  kind: 'overview',
  sentence: '',
  summary: [],
  table: { columns: [], rows: [], leftOut: 0 },
  sections: [],
  text: undefined,
  notes: [],
  missing: undefined,
  ...fields,
});
const scalar = (key: string, unit: Unit, value: Cell) => ({ ...column(key, unit), value });
const found = (text: string, of: Report) =>
  piecesOfReport(text, of).flatMap((piece) => (piece.evidence === undefined ? [] : [[piece.text, piece.evidence]]));

const STEPS = {
  name: 'steps',
  title: 'Steps',
  columns: [column('step', 'number'), column('start_ns', 'ns'), column('duration_ns', 'ns')],
  rows: [
    { step: 0, start_ns: 0, duration_ns: 9e6 },
    { step: 1, start_ns: 9e6, duration_ns: 4_426_114 },
  ],
  leftOut: 0,
};
const OPS = {
  columns: [column('name', 'text'), column('self_ns', 'ns'), column('event', 'event')],
  rows: [
    { name: 'aten::mm', self_ns: 2e6, event: 3 },
    { name: 'aten::addmm', self_ns: 754_000, event: 7 },
  ],
  leftOut: 0,
};

it('takes a figure of lengths to the step that is as long', () => {
  const overview = report({
    summary: [scalar('step_p50_ns', 'ns', 4_426_000), scalar('device_busy_share', 'share', 0.0699)],
    sections: [STEPS],
  });
  expect(found('Steps take 4.43 ms (p90 9.00 ms). The device is busy 7.0 % of that.', overview)).toEqual([
    ['4.43 ms', { kind: 'range', startNs: 9e6, endNs: 13_426_114, host: undefined }],
    ['9.00 ms', { kind: 'range', startNs: 0, endNs: 9e6, host: undefined }],
    ['7.0 %', { kind: 'figure', key: 'device_busy_share' }],
  ]);
});

it('takes what is said after a name to that row, and a value to the row that has it', () => {
  const ops = report({ kind: 'ops', table: OPS });
  const addmm = { kind: 'row', key: 'aten::addmm', name: 'aten::addmm' };
  expect(found('most of that aten::addmm (63.9 %)', ops)).toEqual([['63.9 %', addmm]]);
  expect(found('754 µs went there', ops)).toEqual([['754 µs', addmm]]);
  expect(found('755 µs went nowhere', ops)).toEqual([]);
  const twice = { ...OPS, rows: [...OPS.rows, { name: 'aten::bmm', self_ns: 754_100, event: 9 }] };
  expect(found('754 µs went there', report({ kind: 'ops', table: twice }))).toEqual([]);
  expect(found('in version 2.0 and on GPU 0 there are 12 of them', ops)).toEqual([]);
});

it('takes the peak to the event that made it', () => {
  const memory = report({
    summary: [scalar('peak_bytes', 'bytes', 101_305_344), scalar('peak_event', 'event', 2291)],
  });
  expect(found('CUDA 0 peaked at 96.6 MiB', memory)).toEqual([['96.6 MiB', { kind: 'event', id: 2291 }]]);
});

it('takes numbers of steps and ranks, and what is counted, to what they name', () => {
  const memory = report({ summary: [scalar('allocations', 'count', 60), scalar('ranks', 'count', 8)] });
  expect(found('held most in step 6, aten::x; 60 allocations of 8 ranks, 60 frees', memory)).toEqual([
    ['step 6', { kind: 'step', step: 6 }],
    ['60', { kind: 'figure', key: 'allocations' }],
    ['8', { kind: 'figure', key: 'ranks' }],
    ['60', { kind: 'figure', key: 'allocations' }],
  ]);
  expect(found('Rank 7 is late, 8 steps, version 2 of it', memory)).toEqual([['Rank 7', { kind: 'rank', rank: 7 }]]);
  const derived = report({ summary: [scalar('derived_from', 'text', 'jit_f')] });
  expect(found('most in step 6', derived)).toEqual([]);
  const event = { kind: 'event', id: 1 } as const;
  const linked = piecesWith('1506 of 2040 kernels in 3 queues: 5 µs in step 2', event).filter(
    (piece) => piece.evidence,
  );
  expect(linked.map((piece) => piece.text)).toEqual(['1506', '2040', '5 µs']);
  // Numbers of steps in a row are no counts.
  const steps = piecesWith('Steps 25, 28 and 45 more of 119 are long: 5 µs', event);
  expect(steps.filter((piece) => piece.evidence).map((piece) => piece.text)).toEqual(['5 µs']);
});

it('loses no letter of the sentence', () => {
  const text = 'It took 1.00 ms, then 20.0 % of 3 GiB; µs ms.';
  const pieces = piecesOf(text, () => ({ kind: 'event', id: 1 }));
  expect(pieces.map((piece) => piece.text).join('')).toBe(text);
  expect(pieces.filter((piece) => piece.evidence !== undefined).map((piece) => piece.text)).toEqual([
    '1.00 ms',
    '20.0 %',
    '3 GiB',
  ]);
});
