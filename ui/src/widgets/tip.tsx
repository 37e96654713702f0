// tip.tsx: the tooltip of a canvas, on the side of the pointer with enough room.
import type { JSX } from 'preact';

export interface Tip {
  readonly x: number;
  readonly y: number;
  readonly title: string;
  readonly lines: readonly string[];
}

export function TipBox({
  tip,
  widthPx,
  heightPx,
}: {
  readonly tip: Tip | undefined;
  readonly widthPx: number;
  readonly heightPx: number;
}): JSX.Element | undefined {
  if (tip === undefined) return undefined;
  const toLeft = tip.x > widthPx - 340;
  const above = tip.y > heightPx - 96;
  const style = {
    ...(toLeft ? { right: `${widthPx - tip.x + 12}px` } : { left: `${tip.x + 14}px` }),
    ...(above ? { bottom: `${heightPx - tip.y + 10}px` } : { top: `${tip.y + 16}px` }),
  };
  return (
    <div class="ss-tip" style={style} aria-hidden="true">
      <strong>{tip.title}</strong>
      {tip.lines.map((line) => (
        <span key={line}>{line}</span>
      ))}
    </div>
  );
}
