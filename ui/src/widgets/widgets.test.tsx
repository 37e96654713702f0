import { cleanup, fireEvent, render, screen } from '@testing-library/preact';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { contrast, DARK, LIGHT, mix, rgbOf } from '../base/theme.ts';
import { Combobox, filterOptions } from './combobox.tsx';
import { toCsv } from './download.ts';
import { Elided } from './elided.tsx';
import { SHADES, STRONG_SHADE } from './heat-map.tsx';
import { ErrorState } from './states.tsx';
import { sortRows, Table } from './table.tsx';
import { Tabs } from './tabs.tsx';

afterEach(cleanup);

const TOOLS = [
  { id: 'overview', label: 'Overview', search: 'overview_page', muted: true, detail: 'not recorded' },
  { id: 'timeline', label: 'Timeline', search: 'trace_viewer trace' },
  { id: 'ops', label: 'Ops', search: 'op_profile' },
];

describe('Combobox', () => {
  it('finds old names, best matches first', () => {
    expect(filterOptions(TOOLS, 'trace_viewer').map((option) => option.id)).toEqual(['timeline']);
    expect(filterOptions(TOOLS, 'op').map((option) => option.id)).toEqual(['ops']);
    expect(filterOptions(TOOLS, 'o').map((option) => option.id)).toEqual(['overview', 'ops']);
    expect(filterOptions(TOOLS, '').length).toBe(3);
  });

  it('is chosen from by keys alone', () => {
    const onChoose = vi.fn();
    render(<Combobox label="Tool" text="Overview" options={TOOLS} onChoose={onChoose} />);
    const field = screen.getByRole('combobox', { name: 'Tool' });
    expect(field.getAttribute('aria-expanded')).toBe('false');
    fireEvent.input(field, { target: { value: 'trace_viewer' } });
    expect(field.getAttribute('aria-expanded')).toBe('true');
    fireEvent.keyDown(field, { key: 'Enter' });
    expect(onChoose).toHaveBeenCalledWith('timeline');
    expect(field.getAttribute('aria-expanded')).toBe('false');
  });

  it('closes with Escape without choosing, and says when nothing matches', () => {
    const onChoose = vi.fn();
    render(<Combobox label="Run" text="" options={TOOLS} onChoose={onChoose} />);
    const field = screen.getByRole('combobox', { name: 'Run' });
    fireEvent.input(field, { target: { value: 'zzz' } });
    expect(screen.getByText(/Nothing matches/)).toBeTruthy();
    fireEvent.keyDown(field, { key: 'Enter' });
    fireEvent.keyDown(field, { key: 'Escape' });
    expect(field.getAttribute('aria-expanded')).toBe('false');
    expect(onChoose).not.toHaveBeenCalled();
  });
});

const COLUMNS = [
  { id: 'name', title: 'Name', value: (row: { name: string; ns: number }) => row.name },
  { id: 'total', title: 'Total', numeric: true, value: (row: { name: string; ns: number }) => row.ns },
];
const ROWS = [
  { name: 'b', ns: 10 },
  { name: '<img src=x onerror=alert(1)>', ns: 9 },
  { name: 'a', ns: 200 },
];

describe('Table', () => {
  it('sorts numbers by size and shows trace text as text', () => {
    const { container } = render(<Table caption="Things" columns={COLUMNS} rows={ROWS} keyOf={(row) => row.name} />);
    expect(container.querySelector('img')).toBeNull();
    fireEvent.click(screen.getByRole('button', { name: /Total/ }));
    const first = () => container.querySelector('tbody tr td')?.textContent;
    expect(first()).toBe('a');
    expect(container.querySelector('th[aria-sort="descending"]')?.textContent).toContain('Total');
    fireEvent.click(screen.getByRole('button', { name: /Total/ }));
    expect(first()).toContain('<img');
  });

  it('keeps only the rows near the view in the document', () => {
    const many = Array.from({ length: 10_000 }, (_, at) => ({ name: `n${at}`, ns: at }));
    const { container } = render(<Table caption="Things" columns={COLUMNS} rows={many} keyOf={(row) => row.name} />);
    expect(container.querySelectorAll('tr[data-key]').length).toBeLessThan(200);
    expect(container.querySelector('table')?.getAttribute('aria-rowcount')).toBe('10001');
  });

  it('sorts text by letters', () => {
    expect(sortRows(ROWS, COLUMNS[0], false).map((row) => row.ns)).toEqual([9, 200, 10]);
  });
});

it('writes CSV that a spreadsheet neither breaks nor runs', () => {
  expect(
    toCsv(COLUMNS, [
      { name: 'a,"b"\nc', ns: 1.5 },
      { name: '=1+1', ns: -2 },
    ]),
  ).toBe('Name,Total\r\n"a,""b""\nc",1.5\r\n\'=1+1,-2\r\n');
});

it('moves through tabs by arrow keys', () => {
  const onChoose = vi.fn();
  render(
    <Tabs
      label="Details"
      panelId="p"
      active="a"
      tabs={[
        { id: 'a', label: 'A' },
        { id: 'b', label: 'B' },
      ]}
      onChoose={onChoose}
    />,
  );
  fireEvent.keyDown(screen.getByRole('tab', { name: 'A' }), { key: 'ArrowLeft' });
  expect(onChoose).toHaveBeenCalledWith('b');
});

describe('HeatMap', () => {
  it.each([LIGHT, DARK])('can be read in every shade, $name', (theme) => {
    for (let shade: number = SHADES[0]; shade <= SHADES[1]; shade += 0.01) {
      const text = shade >= STRONG_SHADE ? '#000000' : theme.heatText;
      const cell = mix(rgbOf(theme.panel), rgbOf(theme.accent), shade);
      expect(contrast(rgbOf(text), cell), `shade ${shade}`).toBeGreaterThanOrEqual(4.5);
    }
  });
});

describe('ErrorState', () => {
  it('begins its sentences large, and keeps hints for programs to the details', () => {
    render(
      <ErrorState
        title="no such run"
        detail="there is none"
        hint="GET /api/v1/runs lists all of them"
        report="all of it"
      />,
    );
    expect(screen.getByRole('heading').textContent).toBe('No such run');
    expect(screen.getByText('There is none')).toBeTruthy();
    expect(screen.queryByText(/GET/)).toBeNull();
  });
});

describe('Elided', () => {
  it('keeps the whole text in the document, split where it may be cut', () => {
    const path = 'replica_6/bert_encoder/layer_10/query/MatMul';
    const { container } = render(<Elided text={path} cut={38} />);
    expect(container.textContent).toBe(path);
    expect(container.querySelector('.ss-elided-tail')?.textContent).toBe('MatMul');
    expect(render(<Elided text="aten::mm" cut={0} />).container.querySelector('.ss-elided-head')).toBeNull();
  });

  it('asks for no more room for the head than its narrowest letters take', () => {
    render(<Elided text="Iterator::Prefetch" cut={10} />);
    // Letters of 12 px are at least 3.3 px wide: "Iterator::" is 55 px wide, half an em for each would be 60.
    const head = screen.getByText('Iterator::');
    expect(Number(/([\d.]+)em/.exec(head.getAttribute('style') ?? '')?.[1])).toBeLessThan(3.4);
  });
});
