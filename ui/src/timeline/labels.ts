// labels.ts: texts truncated to fit a bar. Widths come from a table of characters; truncated texts are cached by name
// and width step.

const STEP_PX = 8;
const CACHE_NAMES = 4000;

export interface LabelCutter {
  /** Returns the text that fits into `widthPx`, with "…" if truncated; empty if nothing fits. */
  cut(text: string, widthPx: number): string;
}

/** Creates a cutter; `measure` returns the width of a text in pixels in the drawing font. */
export function createLabelCutter(measure: (text: string) => number): LabelCutter {
  const charWidths = new Map<number, number>();
  const cache = new Map<string, Map<number, string>>();
  const widthOf = (code: number): number => {
    const known = charWidths.get(code);
    if (known !== undefined) return known;
    const width = measure(String.fromCharCode(code));
    charWidths.set(code, width);
    return width;
  };
  const dots = measure('…');

  return {
    cut(text, widthPx) {
      const step = Math.floor(widthPx / STEP_PX);
      let byStep = cache.get(text);
      if (byStep === undefined) {
        if (cache.size >= CACHE_NAMES) cache.clear();
        byStep = new Map();
        cache.set(text, byStep);
      }
      const known = byStep.get(step);
      if (known !== undefined) return known;
      const room = step * STEP_PX;
      let width = 0;
      let fits = 0;
      let result = text;
      for (let at = 0; at < text.length; at += 1) {
        width += widthOf(text.charCodeAt(at));
        if (width + dots <= room) fits = at + 1;
        if (width > room) {
          result = fits < 2 ? '' : `${text.slice(0, fits)}…`;
          break;
        }
      }
      byStep.set(step, result);
      return result;
    },
  };
}
