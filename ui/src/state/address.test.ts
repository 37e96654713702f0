import { describe, expect, it } from 'vitest';
import {
  type Address,
  EMPTY_VIEW,
  formatAddress,
  formatViewFile,
  isNewEntry,
  parseAddress,
  parseRoute,
  parseViewFile,
  type View,
} from './address.ts';

const round = (address: Address) => {
  const [path = '', search = ''] = formatAddress(address).split(/\?(.*)/s);
  return parseAddress(path, search);
};
const timeline = (view: Partial<View>): Address => ({
  place: { kind: 'tool', run: 'a run/2%', tool: 'timeline' },
  view: { ...EMPTY_VIEW, ...view },
});

describe('address', () => {
  it('reproduces a whole view', () => {
    const address = timeline({
      range: { startNs: -20.125, endNs: 12_831_042.5 },
      hosts: ['host-0', 'a,b&c'],
      rank: 3,
      steps: { from: 13, to: 21 },
      selected: 4_000_000_000,
      area: { startNs: 10, endNs: 20.001, tracks: [3, 14] },
      query: 'a+b & <img src=x onerror=alert(1)> 100% #?',
      match: 2,
      pins: ['1/10', 'plane, with/odd&keys'],
      hides: ['0/7'],
      folds: ['1', '-2'],
      only: ['@device/0'],
      moves: ['up:1/11', 'down:-1/12', 'up:1/11'],
      grouping: 'device',
      colouring: 'rank',
      counterScaling: 'shared',
      tab: 'flows',
      filter: 'stream, !/copy/',
      sort: 'total_ns:desc',
      by: 'hlo',
      row: 'fusion.3·a&b=c#2',
      focus: '$train.py:12 step & <b>',
      threads: ['1/10', 'a,b'],
      module: 'jit_step(18446744073709551615)',
      over: 'jit_step(2)',
      space: 5,
      at: 1234.5,
      peak: 989.4,
      bandwidth: 3352,
      category: 'loop fusion',
      top: 10,
      whatIf: ['kernel:f<a, b=x2>(int)=x0.5', 'host=x0'],
      presets: ['host-free', 'device:x0.5'],
      criticalPath: true,
      tolerance: 0.02,
      confidence: 0.99,
      baseStep: '13',
      otherStep: '14:2',
      quiet: true,
      theme: 'dark',
    });
    expect(round(address)).toEqual(address);
  });

  it('opens the view of a page that another profiler names', () => {
    const { place, view } = parseAddress('/run/a/op_profile', 'by=category');
    expect([place, view.tab, view.by]).toEqual([{ kind: 'tool', run: 'a', tool: 'ops' }, 'profile', 'category']);
    expect(parseAddress('/run/a/hlo_stats', '').view.by).toBe('hlo');
    expect(parseAddress('/run/a/roofline', '').place).toEqual({ kind: 'tool', run: 'a', tool: 'roofline' });
  });

  it('is short when there is little to say', () => {
    expect(formatAddress(timeline({}))).toBe('/run/a%20run%2F2%25/timeline');
    expect(formatAddress({ place: { kind: 'tool', run: 'r', tool: 'overview' }, view: EMPTY_VIEW })).toBe('/run/r');
    expect(
      formatAddress(timeline({ area: { startNs: 10, endNs: 20, tracks: [3, 4] }, steps: { from: 13, to: 13 } })),
    ).toBe('/run/a%20run%2F2%25/timeline?step=13&area=10-20@3,4');
    expect(formatAddress({ place: { kind: 'runs' }, view: { ...EMPTY_VIEW, selected: 4 } })).toBe('/');
  });

  it.each([
    't=5',
    't=20-10',
    't=NaN-3',
    'sel=-1',
    'sel=1.5',
    'sel=x',
    'area=@3',
    'step=9-3',
    'group=nope',
    'color=',
    'tab=evil',
    'theme=pink',
    'unknown=1',
    'match=',
    '%E0%A4%A',
  ])('ignores %s', (search) => expect(parseAddress('/run/r/timeline', search).view).toEqual(EMPTY_VIEW));

  it('knows its places', () => {
    expect(parseRoute('/')).toEqual({ kind: 'runs' });
    expect(parseRoute('/run/r')).toEqual({ kind: 'tool', run: 'r', tool: 'overview' });
    expect(parseRoute('/run/r/timeline/')).toEqual({ kind: 'tool', run: 'r', tool: 'timeline' });
    expect(parseRoute('/run/%E0%A4%A')).toEqual({ kind: 'tool', run: '%E0%A4%A', tool: 'overview' });
    expect(parseRoute('/nonsense')).toEqual({ kind: 'unknown', path: '/nonsense' });
    expect(parseAddress('/sql', 'run=r&run=s').place).toEqual({ kind: 'sql', runs: ['r', 's'] });
    expect(parseAddress('/run/r/sql', '').place).toEqual({ kind: 'sql', runs: ['r'] });
    expect(parseAddress('/sql/more', '').place.kind).toBe('unknown');
  });

  it('makes new entries of pages, selections and areas, not of zoom', () => {
    const at = timeline({ range: { startNs: 0, endNs: 10 } });
    expect(isNewEntry(at, timeline({ range: { startNs: 5, endNs: 10 }, pins: ['x'] }))).toBe(false);
    expect(isNewEntry(at, timeline({ selected: 1 }))).toBe(true);
    expect(isNewEntry(at, timeline({ area: { startNs: 0, endNs: 1, tracks: [] } }))).toBe(true);
    expect(isNewEntry(at, { ...at, place: { kind: 'runs' } })).toBe(true);
  });

  it('goes through a view file', () => {
    const address = timeline({ selected: 7, pins: ['a'] });
    expect(parseViewFile(formatViewFile(address, 'hash'))).toEqual(address);
    for (const text of ['', '{}', 'null', '[1]', '{"stepscopeView":1,"address":"https://elsewhere/"}'])
      expect(parseViewFile(text)).toBeUndefined();
  });
});

describe('the page of two runs', () => {
  it('has both runs and every choice in its address', () => {
    const address: Address = {
      place: { kind: 'compare', base: 'a run/2%', other: 'b&c=d' },
      view: {
        ...EMPTY_VIEW,
        by: 'kernel',
        mode: 'shape',
        steps: { from: 3, to: 9 },
        tolerance: 0.05,
        confidence: 0.9,
        tab: 'timelines',
        renames: ['mm=matmul', 'model/*=net/*'],
        baseLimit: { steps: '4-12', rank: undefined },
        otherLimit: { steps: '5-', rank: 3 },
        baseStep: '4',
        otherStep: '5:1',
        range: { startNs: -12.5, endNs: 300 },
        row: 'aten::mm (backward)',
      },
    };
    expect(round(address)).toEqual(address);
  });

  it('is the page of one run with the run as the new side', () => {
    expect(parseAddress('/run/x/compare', '').place).toEqual({ kind: 'compare', base: undefined, other: 'x' });
    expect(parseAddress('/compare', 'a=p&b=q').place).toEqual({ kind: 'compare', base: 'p', other: 'q' });
    expect(parseAddress('/compare/more', '').place.kind).toBe('unknown');
  });

  it('ignores choices of the wrong shape', () => {
    const { view } = parseAddress('/compare', 'tolerance=2&confidence=x&astep=-1&bstep=1:2:3');
    expect([view.tolerance, view.confidence, view.baseStep, view.otherStep]).toEqual(Array(4).fill(undefined));
  });

  it('adds an entry to the history for another run', () => {
    const at = (base: string): Address => ({ place: { kind: 'compare', base, other: 'b' }, view: EMPTY_VIEW });
    expect(isNewEntry(at('x'), at('y'))).toBe(true);
    expect(isNewEntry(at('x'), at('x'))).toBe(false);
  });
});
