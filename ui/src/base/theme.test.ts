import { describe, expect, it } from 'vitest';
import { contrast, DARK, LIGHT, lighten, pixelOf, rgbOf } from './theme.ts';

describe.each([LIGHT, DARK])('theme $name', (theme) => {
  it('has text that reaches 5.5:1 on every background it stands on', () => {
    for (const text of [theme.text, theme.muted, theme.accent]) {
      for (const back of [theme.background, theme.panel, theme.raised]) {
        expect(contrast(rgbOf(text), rgbOf(back)), `${text} on ${back}`).toBeGreaterThanOrEqual(
          text === theme.text ? 7 : 5.2,
        );
      }
    }
    expect(contrast(rgbOf(theme.onAccent), rgbOf(theme.accent))).toBeGreaterThanOrEqual(4.5);
    expect(contrast(rgbOf(theme.warning), rgbOf(theme.warningSoft))).toBeGreaterThanOrEqual(4.5);
    expect(contrast(rgbOf(theme.bad), rgbOf(theme.badSoft))).toBeGreaterThanOrEqual(4.5);
    expect(contrast(rgbOf(theme.text), rgbOf(theme.hover))).toBeGreaterThanOrEqual(4.5);
    expect(contrast(rgbOf(theme.muted), rgbOf(theme.hover))).toBeGreaterThanOrEqual(4.5);
    expect(contrast(rgbOf(theme.muted), rgbOf(theme.accentSoft))).toBeGreaterThanOrEqual(4.5);
  });

  it('has colours of differences on which names can be read', () => {
    for (const colour of [theme.less, theme.more]) {
      expect(contrast(rgbOf(theme.sliceText), rgbOf(colour)), colour).toBeGreaterThanOrEqual(4.89);
    }
  });

  it('has slices on which their name can be read, in each lightness step', () => {
    for (const kind of theme.kinds) {
      for (const step of [-0.03, 0, 0.03]) {
        expect(contrast(rgbOf(theme.sliceText), lighten(rgbOf(kind), step)), kind).toBeGreaterThanOrEqual(4.89);
      }
    }
  });
});

it('lightens by nothing without changing the colour', () => {
  expect(lighten(rgbOf('#5a93e5'), 0)).toEqual(rgbOf('#5a93e5'));
});

it('packs pixels as a canvas keeps them', () => {
  expect(pixelOf({ r: 1, g: 2, b: 3 })).toBe(0xff030201);
});
