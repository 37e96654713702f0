// elided.tsx: a name that is truncated in the part it shares with other names, so that the distinguishing part stays.
import type { JSX } from 'preact';

/** Width of the narrowest letters: a head declared wider than its text would leave a gap before the tail. */
const NARROW_EM = 0.27;

/** A truncatable name. `cut`: length of the prefix that may be omitted, from `cutsOf`. */
export function Elided({
  text,
  cut = 0,
  title = text,
}: {
  readonly text: string;
  readonly cut?: number | undefined;
  /** Tooltip; default: the text. */
  readonly title?: string;
}): JSX.Element {
  if (cut <= 0 || cut >= text.length) {
    return (
      <span class="ss-elided-whole" title={title}>
        {text}
      </span>
    );
  }
  return (
    <span class="ss-elided" title={title}>
      <span class="ss-elided-head" style={{ minWidth: `min(40%, ${Math.min(8, cut * NARROW_EM)}em)` }}>
        {text.slice(0, cut)}
      </span>
      <span class="ss-elided-tail">{text.slice(cut)}</span>
    </span>
  );
}
