import { describe, expect, it } from 'vitest';
import { ancestorOf, levelOf, neighbourSlots, slotRange, slotsOf, tileNs } from './tiles.ts';

const RUN = { startNs: 0, endNs: 1e9 };

describe('tiles', () => {
  it('has bins of one to two pixels', () => {
    for (const length of [10, 1000, 777_777, 1e9, 3.6e13]) {
      const view = { startNs: 0, endNs: length, widthPx: 1350 };
      const binPx = (2 ** levelOf(view) * view.widthPx) / length;
      expect(binPx).toBeGreaterThanOrEqual(1);
      expect(binPx).toBeLessThanOrEqual(2);
    }
  });

  it('covers the window without gaps, within the run', () => {
    const view = { startNs: 123_456, endNs: 9_123_456, widthPx: 1000 };
    const level = levelOf(view);
    const slots = slotsOf(view, level, RUN);
    const [first, last] = [slots[0], slots[slots.length - 1]];
    expect(first && slotRange(first).startNs).toBeLessThanOrEqual(view.startNs);
    expect(last && slotRange(last).endNs).toBeGreaterThanOrEqual(view.endNs);
    slots.forEach((slot, at) => {
      expect(slot.index).toBe((slots[0]?.index ?? 0) + at);
    });
    expect(slots.length).toBeLessThanOrEqual(4);
    expect(slotsOf({ startNs: -1e9, endNs: 1 }, level, RUN)[0]?.index).toBe(0);
  });

  it('has the tile of an event that ends the run at a border', () => {
    const level = 10;
    const run = { startNs: 0, endNs: tileNs(level) * 2 };
    expect(slotsOf(run, level, run).map((slot) => slot.index)).toEqual([0, 1, 2]);
    expect(slotsOf({ startNs: 0, endNs: tileNs(level) }, level, run).map((slot) => slot.index)).toEqual([0]);
  });

  it('asks for the nearest neighbours first', () => {
    const view = { startNs: 4e8, endNs: 5e8, widthPx: 1000 };
    const level = levelOf(view);
    const visible = slotsOf(view, level, RUN).map((slot) => slot.index);
    const around = neighbourSlots(view, level, RUN).map((slot) => slot.index);
    expect(around.some((index) => visible.includes(index))).toBe(false);
    expect(Math.min(...around)).toBeLessThan(Math.min(...visible));
    expect(Math.max(...around)).toBeGreaterThan(Math.max(...visible));
    const middle = 4.5e8 / tileNs(level);
    const away = around.map((index) => Math.abs(index + 0.5 - middle));
    expect([...away].sort((a, b) => a - b)).toEqual(away);
  });

  it('finds the coarser tile that covers one', () => {
    expect(ancestorOf({ level: 3, index: 13 }, 2)).toEqual({ level: 5, index: 3 });
    const fine = slotRange({ level: 3, index: 13 });
    const coarse = slotRange({ level: 5, index: 3 });
    expect(coarse.startNs <= fine.startNs && fine.endNs <= coarse.endNs).toBe(true);
  });
});
