// theme.ts: every colour of the viewer: CSS variables for pages, numbers for the canvas.

export type ThemeName = 'light' | 'dark';

/** Colours of one theme as CSS text. */
export interface Theme {
  readonly name: ThemeName;
  readonly background: string;
  readonly panel: string;
  readonly raised: string;
  readonly text: string;
  readonly muted: string;
  readonly line: string;
  readonly border: string;
  readonly accent: string;
  readonly accentSoft: string;
  readonly onAccent: string;
  readonly good: string;
  readonly warning: string;
  readonly warningSoft: string;
  readonly bad: string;
  readonly badSoft: string;
  readonly shadow: string;
  readonly hover: string;
  readonly sliceText: string;
  /** Text on the lighter cells of a heat map; it is black on the stronger ones. */
  readonly heatText: string;
  /** One colour per `SliceKind` number. */
  readonly kinds: readonly string[];
  /** Counter bands: fill and line. */
  readonly counterFill: string;
  readonly counterLine: string;
  /** Idle time as a part of a whole. */
  readonly idle: string;
  readonly grid: string;
  readonly flow: string;
  /** Differences of two runs: less time, more time. */
  readonly less: string;
  readonly more: string;
}

export const LIGHT: Theme = {
  name: 'light',
  background: '#ffffff',
  panel: '#f6f7f9',
  raised: '#ffffff',
  text: '#1b1f24',
  muted: '#5b6470',
  line: '#e1e5ea',
  border: '#8b95a3',
  accent: '#1f5fbf',
  accentSoft: '#e6effb',
  onAccent: '#ffffff',
  good: '#1d6f42',
  warning: '#8a5a00',
  warningSoft: '#fdf3dc',
  bad: '#b3261e',
  badSoft: '#fdeceb',
  shadow: '0 6px 24px rgba(20, 24, 29, 0.18)',
  hover: '#eceff3',
  sliceText: '#14181d',
  heatText: '#000000',
  kinds: [
    '#c3c8cf',
    '#5a93e5',
    '#dbacff',
    '#24a5af',
    '#70e5c3',
    '#ce9244',
    '#ff9875',
    '#89afd6',
    '#dae2ac',
    '#cba6b1',
    '#ace6ff',
    '#f9c64e',
    '#d47f84',
  ],
  counterFill: '#c9dcf6',
  counterLine: '#1f5fbf',
  idle: '#e1e5ea',
  grid: '#eef0f3',
  flow: '#1b1f24',
  less: '#4b8fe8',
  more: '#e8892b',
};

export const DARK: Theme = {
  name: 'dark',
  background: '#14171c',
  panel: '#1b1f26',
  raised: '#22272f',
  text: '#e6e9ee',
  muted: '#9aa4b2',
  line: '#2b313a',
  border: '#6b7686',
  accent: '#7fb2ff',
  accentSoft: '#1f2f49',
  onAccent: '#10141a',
  good: '#6fcf97',
  warning: '#e9b44c',
  warningSoft: '#33291a',
  bad: '#ff9a91',
  badSoft: '#3a2423',
  shadow: '0 8px 28px rgba(0, 0, 0, 0.55)',
  hover: '#262c35',
  sliceText: '#10141a',
  heatText: '#ffffff',
  kinds: [
    '#8d949e',
    '#5c91df',
    '#c79bf8',
    '#2ea2ab',
    '#62d0b1',
    '#bc843a',
    '#ec8767',
    '#799cc0',
    '#c7ce9c',
    '#b6949e',
    '#9bd2eb',
    '#e3b342',
    '#c6767b',
  ],
  counterFill: '#253b5c',
  counterLine: '#7fb2ff',
  idle: '#3b434f',
  grid: '#1f242b',
  flow: '#e6e9ee',
  less: '#5c9bf0',
  more: '#e0913d',
};

export const themeOf = (name: ThemeName): Theme => (name === 'dark' ? DARK : LIGHT);

export interface Rgb {
  readonly r: number;
  readonly g: number;
  readonly b: number;
}

/** Parses `#rrggbb`. */
export function rgbOf(hex: string): Rgb {
  const value = Number.parseInt(hex.slice(1), 16);
  return { r: (value >> 16) & 255, g: (value >> 8) & 255, b: value & 255 };
}

export const cssOf = ({ r, g, b }: Rgb): string => `rgb(${r}, ${g}, ${b})`;

/** Returns the colour with transparency. */
export const cssFaint = ({ r, g, b }: Rgb, alpha: number): string => `rgba(${r}, ${g}, ${b}, ${alpha})`;

/** Returns the colour as a pixel in canvas memory on little-endian machines: ABGR, opaque. */
export const pixelOf = ({ r, g, b }: Rgb): number => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

/** Mixes `share` (0..1) of `over` with the rest of `under`. */
export function mix(under: Rgb, over: Rgb, share: number): Rgb {
  const part = (a: number, b: number) => Math.round(a + (b - a) * share);
  return { r: part(under.r, over.r), g: part(under.g, over.g), b: part(under.b, over.b) };
}

const toLinear = (c: number) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const toGamma = (c: number) => (c <= 0.0031308 ? c * 12.92 : 1.055 * c ** (1 / 2.4) - 0.055);
const toByte = (c: number) => Math.max(0, Math.min(255, Math.round(toGamma(c) * 255)));

/** Returns the same hue, lighter or darker by `step` in OKLab lightness. */
export function lighten(colour: Rgb, step: number): Rgb {
  const r = toLinear(colour.r / 255);
  const g = toLinear(colour.g / 255);
  const b = toLinear(colour.b / 255);
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  const lightness = 0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s + step;
  const a = 1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s;
  const bb = 0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s;
  const l2 = (lightness + 0.3963377774 * a + 0.2158037573 * bb) ** 3;
  const m2 = (lightness - 0.1055613458 * a - 0.0638541728 * bb) ** 3;
  const s2 = (lightness - 0.0894841775 * a - 1.291485548 * bb) ** 3;
  return {
    r: toByte(4.0767416621 * l2 - 3.3077115913 * m2 + 0.2309699292 * s2),
    g: toByte(-1.2684380046 * l2 + 2.6097574011 * m2 - 0.3413193965 * s2),
    b: toByte(-0.0041960863 * l2 - 0.7034186147 * m2 + 1.707614701 * s2),
  };
}

/** Returns the WCAG contrast of two colours, 1..21. */
export function contrast(a: Rgb, b: Rgb): number {
  const luminance = ({ r, g, b: blue }: Rgb) =>
    0.2126 * toLinear(r / 255) + 0.7152 * toLinear(g / 255) + 0.0722 * toLinear(blue / 255);
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

/** Writes the theme as CSS variables and as `html[data-theme]`. */
export function applyTheme(theme: Theme, root: HTMLElement): void {
  root.dataset['theme'] = theme.name;
  const set = (name: string, value: string) => root.style.setProperty(`--ss-${name}`, value);
  set('background', theme.background);
  set('panel', theme.panel);
  set('raised', theme.raised);
  set('text', theme.text);
  set('muted', theme.muted);
  set('line', theme.line);
  set('border', theme.border);
  set('accent', theme.accent);
  set('accent-soft', theme.accentSoft);
  set('on-accent', theme.onAccent);
  set('good', theme.good);
  set('warning', theme.warning);
  set('warning-soft', theme.warningSoft);
  set('bad', theme.bad);
  set('bad-soft', theme.badSoft);
  set('shadow', theme.shadow);
  set('hover', theme.hover);
  set('slice-text', theme.sliceText);
  set('heat-text', theme.heatText);
  set('grid', theme.grid);
  set('idle', theme.idle);
  set('less', theme.less);
  set('more', theme.more);
  set('counter-fill', theme.counterFill);
  set('counter-line', theme.counterLine);
  theme.kinds.forEach((colour, kind) => {
    set(`kind-${kind}`, colour);
  });
  root.style.colorScheme = theme.name;
}
