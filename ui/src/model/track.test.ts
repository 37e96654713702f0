import { describe, expect, it } from 'vitest';
import {
  readableName,
  type Track,
  type TrackNode,
  trackPaths,
  trackTree,
  withHostNames,
  withoutHandles,
} from './track.ts';
import { trackFixture } from './track-fixture.ts';

const track = (id: number, name: string, more: Partial<Track> = {}): Track => trackFixture(id, { name, ...more });

const TRACKS = [
  track(0, 'host-0', { kind: 'group' }),
  track(1, 'trainer', { kind: 'group', parent: 0 }),
  track(2, 'python', { parent: 1, rank: 0 }),
  track(3, 'loader', { parent: 1, rank: 1 }),
  track(4, 'GPU 0', { kind: 'group', parent: 0 }),
  track(5, 'Stream 7', { parent: 4, device: 0, stream: 7 }),
  track(6, 'empty', { kind: 'group' }),
  track(7, 'orphan', { parent: 99 }),
];
const draw = (nodes: readonly TrackNode[]): string =>
  nodes.map((node) => (node.children.length === 0 ? node.name : `${node.name}(${draw(node.children)})`)).join(' ');

describe('trackTree', () => {
  it.each([
    ['host', 'host-0(trainer(python loader) GPU 0(Stream 7)) orphan'],
    ['device', 'Device 0(Stream 7) Host(python loader orphan)'],
    ['rank', 'Rank 0(python) Rank 1(loader) No rank(Stream 7 orphan)'],
    ['name', 'python(python) loader(loader) Stream 7(Stream 7) orphan(orphan)'],
    ['flat', 'python loader Stream 7 orphan'],
  ] as const)('groups by %s', (grouping, text) => {
    expect(draw(trackTree(TRACKS, grouping))).toBe(text);
  });

  it('puts devices first at each level', () => {
    const tracks = [
      track(0, 'host-0', { kind: 'group' }),
      track(1, 'CPU', { kind: 'group', parent: 0 }),
      track(2, 'python', { parent: 1 }),
      track(3, 'GPU', { kind: 'group', parent: 0 }),
      track(4, 'stream', { parent: 3, role: 'queue' }),
      track(5, 'alone', { role: 'queue' }),
      track(6, 'Steps', { parent: 3, role: 'steps', device: 0 }),
    ];
    expect(draw(trackTree(tracks, 'host'))).toBe('host-0(GPU(stream Steps) CPU(python)) alone');
    expect(draw(trackTree([...tracks].reverse(), 'host'))).toBe('alone host-0(GPU(Steps stream) CPU(python))');
  });

  it('reads names that are numbers', () => {
    expect(readableName('851/851', 'slices', 851, 851)).toBe('main thread 851');
    expect(readableName('3113936/-1029147072', 'slices', 3113936, -1029147072)).toBe('thread -1029147072');
    expect(readableName('851', 'group', 851, undefined)).toBe('process 851');
    expect(readableName('stream 7', 'slices', 0, 7)).toBe('stream 7');
    expect(readableName('7', 'slices', 7, 7)).toBe('7');
  });

  it('calls the host of a Rust run by its program', () => {
    const tracks = [track(1, '/host:CPU', { kind: 'group', host: 'rust_mnist' })];
    expect(withHostNames(tracks, ['Rust'])[0]?.name).toBe('rust_mnist');
    expect(withHostNames(tracks, ['JAX', 'Rust'])[0]?.name).toBe('/host:CPU');
  });

  it('leaves out handles of threads, and counts the threads that they distinguish', () => {
    const names = (...list: readonly string[]) =>
      withoutHandles(list.map((name, at) => track(at, name, { parent: 9 }))).map(({ name }) => name);
    expect(names('tf_XLAEigen/-7156462672528372424', 'tf_XLAEigen/1538113746615801100', 'Host Threads/2356')).toEqual([
      'tf_XLAEigen 1',
      'tf_XLAEigen 2',
      'Host Threads/2356',
    ]);
    expect(names('thread -549452224', 'thread 4399 (python)')).toEqual(['thread', 'thread 4399 (python)']);
    expect(withoutHandles([track(1, 'Stream 123456789', { role: 'queue' })])[0]?.name).toBe('Stream 123456789');
    expect(withoutHandles([track(1, 'w/123456789')])[0]?.recordedName).toBe('w/123456789');
  });

  it('knows the way to each track, even where parents go round in circles', () => {
    expect(trackPaths(TRACKS).get(5)).toBe('host-0 > GPU 0 > Stream 7');
    const circle = [track(1, 'a', { parent: 2 }), track(2, 'b', { parent: 1 })];
    expect(trackPaths(circle).size).toBe(2);
  });
});
