// flame-chart.tsx: a call tree as nested bars, widest first. Draws only visible bars, and only after changes.
import type { ReadonlySignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { formatCount, formatShare } from '../base/format.ts';
import { cssOf, mix, rgbOf, type Theme } from '../base/theme.ts';
import { type CallTree, type FlameBar, flameBars, flameLines, valueText } from '../model/call-nodes.ts';

const LINE_PX = 20;
const BAR_PX = 19;
const PAD_PX = 4;
/** Minimum width of bars with text. */
const TEXT_PX = 28;
const FONT = '12px system-ui, sans-serif';
/** Remaining strength of the colour of bars above the zoomed one. */
const ABOVE_SHARE = 0.45;

export interface FlameChartProps {
  readonly label: string;
  readonly tree: CallTree;
  readonly theme: ReadonlySignal<Theme>;
  /** Row that fills the width; `undefined`: all rows. */
  readonly zoom: number | undefined;
  readonly onZoom: (row: number | undefined) => void;
  readonly colourOf: (row: number, theme: Theme) => string;
  /** Text of a bar; default: the name of its node. */
  readonly textOf?: (row: number) => string;
  /** Whether a search matches a row; other rows are dimmed. */
  readonly isLit?: ((row: number) => boolean) | undefined;
  /** Tooltip of a bar; default: its total, self time and count. */
  readonly tipOf?: (row: number) => string;
  /** Roots are at the bottom. */
  readonly upward?: boolean;
  readonly testId?: string;
}

interface Size {
  readonly widthPx: number;
  readonly heightPx: number;
}

interface Pointed {
  readonly row: number;
  readonly x: number;
  readonly y: number;
}

/** Truncates a text. Cached by text and width class: truncating costs as much as drawing. */
function fitText(context: CanvasRenderingContext2D, text: string, roomPx: number): string {
  if (context.measureText(text).width <= roomPx) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= roomPx) low = middle;
    else high = middle - 1;
  }
  return low < 2 ? '' : `${text.slice(0, low)}…`;
}

function draw(
  canvas: HTMLCanvasElement,
  size: Size,
  bars: readonly FlameBar[],
  yOf: (line: number) => number,
  props: FlameChartProps,
) {
  const { tree } = props;
  const theme = props.theme.value;
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(size.widthPx * scale);
  canvas.height = Math.round(size.heightPx * scale);
  const context = canvas.getContext('2d');
  if (context === null) return;
  context.scale(scale, scale);
  context.fillStyle = theme.background;
  context.fillRect(0, 0, size.widthPx, size.heightPx);
  context.font = FONT;
  context.textBaseline = 'middle';
  const background = rgbOf(theme.background);
  for (const bar of bars) {
    const y = yOf(bar.line);
    const isFaint = bar.isAbove || props.isLit?.(bar.row) === false;
    const colour = props.colourOf(bar.row, theme);
    context.fillStyle = isFaint ? cssOf(mix(background, rgbOf(colour), ABOVE_SHARE)) : colour;
    // Leaves a line of background between neighbours if there is room.
    context.fillRect(bar.x, y, bar.width > 3 ? bar.width - 1 : bar.width, BAR_PX);
    if (bar.width < TEXT_PX) continue;
    const text = props.textOf?.(bar.row) ?? tree.labels[tree.name[bar.row] ?? 0] ?? '';
    const shown = fitText(context, text, bar.width - 2 * PAD_PX);
    if (shown === '') continue;
    context.fillStyle = isFaint ? theme.text : theme.sliceText;
    context.fillText(shown, bar.x + PAD_PX, y + BAR_PX / 2 + 0.5);
  }
}

/** Describes a bar in one line. */
export function barText(tree: CallTree, row: number): string {
  const total = tree.total[row] ?? 0;
  const share = tree.wholeNs > 0 ? formatShare(total / tree.wholeNs) : '';
  return `${valueText(tree, total)} (${share}), self ${valueText(tree, tree.self[row] ?? 0)}, ${formatCount(tree.count[row] ?? 0)}×`;
}

export function FlameChart(props: FlameChartProps): JSX.Element {
  const { tree, zoom } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState<Size>({ widthPx: 0, heightPx: 0 });
  const [topPx, setTopPx] = useState(0);
  const [pointed, setPointed] = useState<Pointed | undefined>(undefined);
  /** The focused row. */
  const [active, setActive] = useState<number | undefined>(undefined);
  const theme = props.theme.value;

  useEffect(() => {
    const box = scroller.current;
    if (box === null) return;
    const measure = () => setSize({ widthPx: box.clientWidth, heightPx: box.clientHeight });
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(box);
    return () => watcher.disconnect();
  }, []);
  useEffect(() => {
    setActive(undefined);
    setPointed(undefined);
  }, [tree]);

  const lines = useMemo(() => flameLines(tree, zoom, size.widthPx), [tree, zoom, size.widthPx]);
  const upward = props.upward === true;
  /** Converts between lines (counted from the roots) and slots (counted from the top); its own inverse. */
  const slotOf = (line: number) => (upward ? lines - 1 - line : line);
  /** Space above the first slot: with few lines, roots stay at the bottom. */
  const headPx = upward ? Math.max(0, size.heightPx - lines * LINE_PX) : 0;
  const yOf = (line: number) => headPx + slotOf(line) * LINE_PX - topPx;
  const firstSlot = Math.floor(topPx / LINE_PX);
  const endSlot = Math.ceil((topPx + size.heightPx) / LINE_PX);
  const from = upward ? Math.max(0, lines - endSlot) : firstSlot;
  const to = upward ? lines - firstSlot : endSlot;
  const bars = useMemo(() => flameBars(tree, zoom, size.widthPx, from, to), [tree, zoom, size.widthPx, from, to]);
  // Does not depend on the pointer: drawing bars and texts on every pointer move is too slow.
  useLayoutEffect(() => {
    if (canvas.current !== null && size.widthPx > 0) draw(canvas.current, size, bars, yOf, props);
  }, [props, theme, size, bars, topPx]);
  // Initially scrolls to the roots.
  useLayoutEffect(() => {
    if (upward && scroller.current !== null) scroller.current.scrollTop = lines * LINE_PX;
  }, [tree, upward, lines, size.heightPx]);
  // Scrolls to the zoomed bar.
  useEffect(() => {
    const box = scroller.current;
    if (box === null || zoom === undefined) return;
    const y = slotOf(tree.depth[zoom] ?? 0) * LINE_PX;
    if (y < box.scrollTop || y > box.scrollTop + box.clientHeight - 3 * LINE_PX) {
      box.scrollTop = Math.max(0, y - 2 * LINE_PX);
    }
  }, [tree, zoom]);

  const barAt = (event: MouseEvent): FlameBar | undefined => {
    const box = scroller.current?.getBoundingClientRect();
    if (box === undefined) return undefined;
    const x = event.clientX - box.left;
    const line = slotOf(Math.floor((event.clientY - box.top + topPx - headPx) / LINE_PX));
    return bars.find((bar) => bar.line === line && x >= bar.x && x < bar.x + Math.max(1, bar.width));
  };
  const go = (row: number | undefined) => {
    if (row === undefined) return;
    setActive(row);
    const box = scroller.current;
    const y = slotOf(tree.depth[row] ?? 0) * LINE_PX;
    if (box !== null && (y < box.scrollTop || y + LINE_PX > box.scrollTop + box.clientHeight)) {
      box.scrollTop = Math.max(0, y - box.clientHeight / 2);
    }
  };
  const sibling = (row: number, by: 1 | -1): number | undefined => {
    const above = tree.parent[row] ?? -1;
    let before: number | undefined;
    const first = above < 0 ? tree.roots[0] : tree.firstChild[above];
    for (let at = first ?? -1; at >= 0; ) {
      const next = above < 0 ? (tree.roots[tree.roots.indexOf(at) + 1] ?? -1) : (tree.nextSibling[at] ?? -1);
      if (at === row) return by < 0 ? before : next < 0 ? undefined : next;
      before = at;
      at = next;
    }
    return undefined;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const now = active ?? zoom ?? tree.roots[0];
    if (now === undefined) return;
    const parent = tree.parent[now] ?? -1;
    const child = tree.firstChild[now] ?? -1;
    const moves: Readonly<Record<string, () => void>> = {
      [upward ? 'ArrowDown' : 'ArrowUp']: () => go(parent < 0 ? undefined : parent),
      [upward ? 'ArrowUp' : 'ArrowDown']: () => go(active === undefined ? now : child < 0 ? undefined : child),
      ArrowLeft: () => go(sibling(now, -1)),
      ArrowRight: () => go(sibling(now, 1)),
      Enter: () => props.onZoom(now),
      Backspace: () => props.onZoom(undefined),
    };
    const move = moves[event.key];
    if (move === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    move();
  };

  const nameOf = (row: number) => tree.names[tree.name[row] ?? 0] ?? '';
  const tipOf = props.tipOf ?? ((row: number) => barText(tree, row));
  const marked = active === undefined ? undefined : bars.find((bar) => bar.row === active);
  return (
    <div class="ss-flame-chart">
      <div
        ref={scroller}
        class="ss-flame-scroll"
        data-testid={props.testId}
        data-bars={bars.length}
        data-lines={lines}
        data-zoom={zoom === undefined ? '' : nameOf(zoom)}
        tabIndex={0}
        role="group"
        aria-label={`${props.label}. Arrow keys go from call to call, Enter zooms, Backspace shows all.`}
        onScroll={(event) => setTopPx(event.currentTarget.scrollTop)}
        onKeyDown={onKeyDown}
        onClick={(event) => {
          const bar = barAt(event);
          if (bar === undefined) return;
          setActive(undefined);
          // A click on the zoomed bar zooms out to its parent.
          const parent = tree.parent[bar.row] ?? -1;
          props.onZoom(bar.row === zoom ? (parent < 0 ? undefined : parent) : bar.row);
        }}
        onPointerMove={(event) => {
          const bar = barAt(event);
          const box = scroller.current?.getBoundingClientRect();
          setPointed(
            bar === undefined || box === undefined
              ? undefined
              : { row: bar.row, x: event.clientX - box.left, y: event.clientY - box.top },
          );
        }}
        onPointerLeave={() => setPointed(undefined)}
      >
        <div style={{ height: `${lines * LINE_PX}px` }}>
          <canvas
            ref={canvas}
            aria-hidden="true"
            style={{
              width: `${size.widthPx}px`,
              height: `${size.heightPx}px`,
              cursor: pointed === undefined ? 'default' : 'pointer',
            }}
          />
        </div>
      </div>
      {marked === undefined ? undefined : (
        <i
          class="ss-flame-mark"
          style={{
            left: `${marked.x}px`,
            top: `${yOf(marked.line)}px`,
            width: `${Math.max(2, marked.width)}px`,
            height: `${BAR_PX}px`,
            borderColor: theme.text,
          }}
        />
      )}
      <span class="ss-hidden" aria-live="polite">
        {active === undefined ? '' : `${nameOf(active)}: ${tipOf(active)}`}
      </span>
      {pointed === undefined ? undefined : (
        <div
          class="ss-flame-tip"
          style={{
            ...(pointed.x > size.widthPx / 2
              ? { right: `${Math.max(0, size.widthPx - pointed.x) + 12}px` }
              : { left: `${pointed.x + 12}px` }),
            ...(pointed.y > size.heightPx / 2
              ? { bottom: `${Math.max(0, size.heightPx - pointed.y) + 12}px` }
              : { top: `${pointed.y + 16}px` }),
          }}
        >
          <strong>{nameOf(pointed.row)}</strong>
          <span>{tipOf(pointed.row)}</span>
        </div>
      )}
    </div>
  );
}
