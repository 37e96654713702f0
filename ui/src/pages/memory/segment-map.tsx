// segment-map.tsx: the segments of an allocator as bars to scale, divided into their blocks. Draws the rows in sight.
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { formatBytes } from '../../base/format.ts';
import type { Theme } from '../../base/theme.ts';
import { type BlockState, type SnapshotSegment, stateWord } from '../../model/snapshot.ts';
import { useWidth } from '../../widgets/figure.tsx';

const ROW_PX = 30;
const BAR_PX = 20;
const NAME_PX = 284;
const MOST_PX = 420;
const RIGHT_PX = 8;
const FONT = '12px system-ui, sans-serif';
const LABEL_PX = 56;

/** A block by the positions of its segment and of itself; without a block, the segment. */
export interface Chosen {
  readonly segment: number;
  readonly block: number | undefined;
}

export const blockColour = (state: BlockState, theme: Theme): string =>
  state === 'active_allocated'
    ? (theme.kinds[1] ?? theme.accent)
    : state === 'active_pending_free'
      ? (theme.kinds[11] ?? theme.warning)
      : theme.idle;

export interface SegmentMapProps {
  readonly label: string;
  readonly segments: readonly SnapshotSegment[];
  readonly chosen: Chosen | undefined;
  readonly theme: Theme;
  onChoose(chosen: Chosen): void;
}

export function SegmentMap({ label, segments, chosen, theme, onChoose }: SegmentMapProps): JSX.Element {
  const [box, widthPx] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [top, setTop] = useState(0);
  const heightPx = Math.min(MOST_PX, Math.max(ROW_PX, segments.length * ROW_PX));
  const most = Math.max(1, ...segments.map(({ bytes }) => bytes));
  const perByte = Math.max(1, widthPx - NAME_PX - RIGHT_PX) / most;

  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext('2d');
    if (element === null || context === null || context === undefined || widthPx === 0) return;
    element.width = Math.round(widthPx * devicePixelRatio);
    element.height = Math.round(heightPx * devicePixelRatio);
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, -top * devicePixelRatio);
    context.font = FONT;
    context.textBaseline = 'middle';
    const first = Math.floor(top / ROW_PX);
    const last = Math.min(segments.length, Math.ceil((top + heightPx) / ROW_PX));
    for (let row = first; row < last; row += 1) {
      const segment = segments[row];
      if (segment === undefined) continue;
      drawRow(context, segment, row, perByte, theme);
      if (chosen?.segment !== row) continue;
      const block = chosen.block === undefined ? undefined : segment.blocks[chosen.block];
      const left = NAME_PX + (block?.offset ?? 0) * perByte;
      const width = Math.max(3, (block?.bytes ?? segment.bytes) * perByte);
      context.strokeStyle = theme.text;
      context.lineWidth = 2;
      context.strokeRect(left, barTop(row), width, BAR_PX);
      context.lineWidth = 1;
    }
  }, [segments, widthPx, heightPx, top, chosen?.segment, chosen?.block, theme]);

  const reveal = (row: number) => {
    const element = box.current;
    if (element === null) return;
    if (row * ROW_PX < element.scrollTop) element.scrollTop = row * ROW_PX;
    else if ((row + 1) * ROW_PX > element.scrollTop + heightPx) element.scrollTop = (row + 1) * ROW_PX - heightPx;
  };
  const choose = (next: Chosen) => {
    reveal(next.segment);
    onChoose(next);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (segments.length === 0) return;
    const row = chosen?.segment ?? 0;
    const block = chosen?.block ?? -1;
    const blocks = segments[row]?.blocks.length ?? 0;
    const beside = (to: number): Chosen => {
      const from = segments[row]?.blocks[Math.max(0, block)]?.offset ?? 0;
      const found = segments[to]?.blocks.findIndex(({ offset, bytes }) => offset + bytes > from) ?? -1;
      return { segment: to, block: found < 0 ? Math.max(0, (segments[to]?.blocks.length ?? 1) - 1) : found };
    };
    const last = segments.length - 1;
    if (chosen === undefined && /^(Arrow|Home|End)/.test(event.key)) choose({ segment: 0, block: 0 });
    else if (event.key === 'ArrowRight') choose({ segment: row, block: Math.min(blocks - 1, block + 1) });
    else if (event.key === 'ArrowLeft') choose({ segment: row, block: Math.max(0, block - 1) });
    else if (event.key === 'ArrowDown') choose(beside(Math.min(last, row + 1)));
    else if (event.key === 'ArrowUp') choose(beside(Math.max(0, row - 1)));
    else if (event.key === 'Home') choose({ segment: row, block: 0 });
    else if (event.key === 'End') choose({ segment: row, block: Math.max(0, blocks - 1) });
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <>
      <div
        class="ss-chart ss-segment-map"
        ref={box}
        role="application"
        aria-roledescription="segment map"
        tabIndex={0}
        aria-label={`${label}. Arrow keys move between blocks and segments.`}
        data-testid="segment-map"
        data-segments={segments.length}
        style={{ height: `${heightPx}px` }}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
        onKeyDown={onKeyDown}
        onClick={(event) => {
          const bounds = event.currentTarget.getBoundingClientRect();
          const row = Math.floor((event.clientY - bounds.top + event.currentTarget.scrollTop) / ROW_PX);
          const segment = segments[row];
          if (segment === undefined) return;
          const offset = (event.clientX - bounds.left - NAME_PX) / perByte;
          const block = segment.blocks.findIndex((one) => offset >= one.offset && offset < one.offset + one.bytes);
          onChoose({ segment: row, block: block < 0 ? undefined : block });
        }}
      >
        <canvas ref={canvas} aria-hidden="true" style={{ height: `${heightPx}px` }} />
        <div aria-hidden="true" style={{ height: `${Math.max(0, segments.length * ROW_PX - heightPx)}px` }} />
      </div>
      <p class="ss-hidden" role="status" data-testid="segment-map-chosen">
        {describe(segments, chosen)}
      </p>
    </>
  );
}

const barTop = (row: number): number => row * ROW_PX + (ROW_PX - BAR_PX) / 2;

function drawRow(
  context: CanvasRenderingContext2D,
  segment: SnapshotSegment,
  row: number,
  perByte: number,
  theme: Theme,
): void {
  const top = barTop(row);
  const middle = top + BAR_PX / 2 + 0.5;
  context.textAlign = 'left';
  context.fillStyle = theme.text;
  context.fillText(formatBytes(segment.bytes), 0, middle);
  context.fillStyle = theme.muted;
  context.fillText(segmentKind(segment), 72, middle);
  context.fillStyle = theme.panel;
  context.fillRect(NAME_PX, top, segment.bytes * perByte, BAR_PX);
  for (const block of segment.blocks) {
    const left = NAME_PX + block.offset * perByte;
    const width = block.bytes * perByte;
    context.fillStyle = blockColour(block.state, theme);
    // Neighbours stay apart while there is room.
    context.fillRect(left, top, width > 3 ? width - 1 : width, BAR_PX);
    if (width < LABEL_PX) continue;
    context.fillStyle = block.state === 'inactive' ? theme.text : theme.sliceText;
    context.fillText(formatBytes(block.bytes), left + 6, middle);
  }
  context.strokeStyle = theme.border;
  context.strokeRect(NAME_PX + 0.5, top + 0.5, Math.max(1, segment.bytes * perByte - 1), BAR_PX - 1);
}

/** Describes the kind of a segment: `large, stream 0x0, expandable`. */
export const segmentKind = ({ type, stream, isExpandable }: SnapshotSegment): string =>
  [type, `stream ${stream}`, ...(isExpandable ? ['expandable'] : [])].filter((word) => word !== '').join(' · ');

function describe(segments: readonly SnapshotSegment[], chosen: Chosen | undefined): string {
  const segment = chosen === undefined ? undefined : segments[chosen.segment];
  if (segment === undefined || chosen === undefined) return '';
  const name = `segment ${chosen.segment + 1} of ${segments.length}, ${formatBytes(segment.bytes)}`;
  const block = chosen.block === undefined ? undefined : segment.blocks[chosen.block];
  return block === undefined
    ? name
    : `${stateWord(block.state)} block of ${formatBytes(block.bytes)}, ${(chosen.block ?? 0) + 1} of ${segment.blocks.length}, in ${name}`;
}
