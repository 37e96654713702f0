import { cleanup, render, screen } from '@testing-library/preact';
import { afterEach, expect, it } from 'vitest';
import { type Report, reportOf } from '../../model/report.ts';
import type { RunDetail } from '../../model/run.ts';
import { type SentenceLink, sentenceOf } from '../../model/sentence.ts';
import { createStore } from '../../state/store.ts';
import { nameView, stepView } from './links.tsx';
import { Notes, SentenceText, targetOf } from './sentence.tsx';

afterEach(cleanup);

const tool = (id: string, state: 'ready' | 'unavailable') => ({
  id,
  page: id,
  title: id,
  group: 'General',
  aliases: [],
  state,
  reason: undefined,
  hint: undefined,
});
const runWith = (...off: readonly string[]): RunDetail => ({
  id: 'r1',
  name: 'r1',
  kinds: [],
  contentHash: 'c',
  durationNs: 1000,
  fit: { startNs: 0, endNs: 1000 },
  outside: 0,
  labelsOnly: false,
  hosts: ['h0', 'h1'],
  ranks: [],
  steps: 0,
  slices: 0,
  tracks: 0,
  sources: [],
  tools: ['timeline', 'ops', 'memory', 'kernels'].map((id) => tool(id, off.includes(id) ? 'unavailable' : 'ready')),
  reports: [],
  warnings: [],
});

const SENTENCE = [
  { text: 'Steps take ' },
  { text: '4.43 ms', value: 4.43e6, unit: 'ns', link: { event: 7 } },
  { text: ' in ' },
  { text: 'step 6', value: 6, unit: 'number', link: { step: 6 } },
  { text: '; the largest is aten::mm (' },
  { text: '5.0 %', value: 0.05, unit: 'share', link: { row: { name: 'aten::mm' } } },
  { text: ') of ' },
  { text: '12', value: 12, unit: 'count' },
  { text: ', as ' },
  { text: 'HTA', link: { section: 'hta' } },
  { text: ' counts, ' },
  { text: '3', value: 3, unit: 'count', link: { section: 'hta' } },
  { text: ' times.' },
];
const report = (kind: string): Report =>
  reportOf({
    report: kind,
    sentence: SENTENCE,
    columns: [{ key: 'name', title: 'Name', unit: 'text' }],
    rows: [{ name: 'aten::add' }, { name: 'aten::mm' }],
    notes: [[{ text: 'It took ' }, { text: '1.00 ms', value: 1e6, unit: 'ns', link: { scalar: 'self_ns' } }]],
  });

it('shows the plain sentence, with a link for each value that leads somewhere', () => {
  const page = { store: createStore(), run: runWith() };
  const { container } = render(<SentenceText page={page} report={report('ops')} sentence={sentenceOf(SENTENCE)} />);
  expect(container.textContent).toBe(
    'Steps take 4.43 ms in step 6; the largest is aten::mm (5.0 %) of 12, as HTA counts, 3 times.',
  );
  const links = screen.getAllByRole('link');
  expect(links.map((link) => link.textContent)).toEqual(['4.43 ms', 'step 6', '5.0 %']);
  expect(links[0]?.getAttribute('href')).toContain('/run/r1/timeline');
  expect(links[2]?.getAttribute('href')).toContain('/run/r1/ops');
  expect(links[2]?.getAttribute('title')).toBe('Show aten::mm in the table');
});

it('links nothing to a timeline that the run has not', () => {
  const page = { store: createStore(), run: runWith('timeline') };
  const { container } = render(<SentenceText page={page} report={report('idle')} sentence={sentenceOf(SENTENCE)} />);
  expect(screen.queryAllByRole('link')).toEqual([]);
  expect(container.textContent).toContain('Steps take 4.43 ms in step 6;');
});

it('lists notes with their links, and nothing where there is none', () => {
  const page = { store: createStore(), run: runWith() };
  render(<Notes page={page} report={report('ops')} />);
  expect(screen.getByRole('listitem').textContent).toBe('It took 1.00 ms');
  expect(screen.getByRole('link').getAttribute('href')).toContain('/run/r1/ops');
  cleanup();
  render(<Notes page={page} report={report('ops')} notes={[]} />);
  expect(screen.queryAllByRole('list')).toEqual([]);
});

it('knows the page and the view of each link', () => {
  const run = runWith('memory');
  const target = (link: SentenceLink, kind = 'ops') => targetOf(run, report(kind), link, 'Step 6', 'framework');
  const row = { kind: 'row', column: 'name', name: 'aten::mm' } as const;
  expect(target(row)).toMatchObject({ tool: 'ops', view: { row: 'aten::mm', by: 'framework' } });
  expect(target({ ...row, name: 'aten::bmm' })).toBeUndefined();
  expect(target(row, 'kernels')).toMatchObject({ tool: 'timeline', view: nameView('aten::mm') });
  const range = { kind: 'range', startNs: 100, endNs: 200, host: 'h1' } as const;
  expect(target(range)).toMatchObject({
    tool: 'timeline',
    view: { range: { startNs: 95, endNs: 205 }, area: { startNs: 100, endNs: 200 }, hosts: ['h1'] },
  });
  expect(target({ ...range, host: undefined })?.view.hosts).toBeUndefined();
  expect(target({ kind: 'step', step: 6 })).toMatchObject({
    tool: 'timeline',
    view: stepView(6),
    title: 'Show step 6 in the timeline',
  });
  expect(target({ kind: 'rank', rank: 3 })).toMatchObject({ tool: 'timeline', view: { rank: 3 } });
  expect(target({ kind: 'page', id: 'kernels' })?.tool).toBe('kernels');
  expect(target({ kind: 'section', name: 'hta' })).toBeUndefined();
});

it('leads figures to the page that explains them, and to the timeline where the run lacks it', () => {
  const target = (run: RunDetail, key: string) => {
    const { tool, view } = targetOf(run, undefined, { kind: 'scalar', key }, '60') ?? {};
    return { tool, view };
  };
  const timeline = { tool: 'timeline', view: {} };
  expect(target(runWith(), 'peak_bytes')).toEqual({ tool: 'memory', view: {} });
  expect(target(runWith('memory'), 'peak_bytes')).toEqual(timeline);
  expect(target(runWith(), 'step_p50_ns')).toEqual(timeline);
  expect(target(runWith(), 'allocations')).toEqual({ tool: 'memory', view: { tab: 'churn' } });
  expect(target(runWith('memory'), 'allocations')).toEqual(timeline);
  expect(target(runWith(), 'idle_ns')).toEqual({ tool: 'reports', view: { by: 'idle' } });
  expect(target({ ...runWith(), reports: [tool('idle', 'unavailable')] }, 'idle_ns')).toEqual(timeline);
});
