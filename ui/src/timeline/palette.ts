// palette.ts: colour tables for drawing, computed once per theme. Strips use numbers, bars use CSS text.
import { cssOf, lighten, mix, pixelOf, type Rgb, rgbOf, type Theme } from '../base/theme.ts';
import { COLOUR_CLASSES, DURATION_BASE, DURATION_STEPS } from './batch.ts';

/** Steps of `busy` in the strip table. */
export const BUSY_STEPS = 16;

export interface Palette {
  readonly theme: Theme;
  /** Pixel for `(state * COLOUR_CLASSES + class) * BUSY_STEPS + busyStep`. */
  readonly strips: Uint32Array;
  /** CSS text for `state * COLOUR_CLASSES + class`. */
  readonly bars: readonly string[];
}

const LIGHTNESS = [-0.03, 0, 0.03] as const;

/** Remaining strength of a colour that a search dims. */
const DIM_SHARE = 0.35;
const BRIGHT_STEP = 0.06;
/** Minimum strength of a strip: an almost idle bin must stay visible. */
const LEAST_BUSY = 0.28;

function classColours(theme: Theme): readonly Rgb[] {
  const other = rgbOf(theme.kinds[0] ?? theme.muted);
  const colours: Rgb[] = Array.from({ length: COLOUR_CLASSES }, () => other);
  theme.kinds.forEach((text, kind) => {
    LIGHTNESS.forEach((step, at) => {
      colours[kind * 3 + at] = lighten(rgbOf(text), step);
    });
  });
  const low = mix(rgbOf(theme.background), rgbOf(theme.kinds[10] ?? theme.muted), 0.55);
  const high = rgbOf(theme.kinds[6] ?? theme.muted);
  const middle = rgbOf(theme.kinds[11] ?? theme.muted);
  for (let step = 0; step < DURATION_STEPS; step += 1) {
    const share = step / (DURATION_STEPS - 1);
    colours[DURATION_BASE + step] = share < 0.5 ? mix(low, middle, share * 2) : mix(middle, high, share * 2 - 1);
  }
  return colours;
}

export function makePalette(theme: Theme): Palette {
  const background = rgbOf(theme.background);
  const normal = classColours(theme);
  const states = [
    normal,
    normal.map((colour) => mix(background, colour, DIM_SHARE)),
    normal.map((colour) => lighten(colour, theme.name === 'dark' ? BRIGHT_STEP : -BRIGHT_STEP)),
  ];
  const strips = new Uint32Array(states.length * COLOUR_CLASSES * BUSY_STEPS);
  states.forEach((colours, state) => {
    colours.forEach((colour, index) => {
      for (let step = 0; step < BUSY_STEPS; step += 1) {
        const share = LEAST_BUSY + (1 - LEAST_BUSY) * (step / (BUSY_STEPS - 1));
        strips[(state * COLOUR_CLASSES + index) * BUSY_STEPS + step] = pixelOf(mix(background, colour, share));
      }
    });
  });
  return { theme, strips, bars: states.flatMap((colours) => colours.map(cssOf)) };
}
