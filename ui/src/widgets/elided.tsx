// elided.tsx: a name that, when it is too long, loses what it shares with other names, not what tells it apart.
import type { JSX } from 'preact';

/** `cut`: length of the prefix that may go, from `cutsOf`. */
export function Elided({ text, cut = 0 }: { readonly text: string; readonly cut?: number | undefined }): JSX.Element {
  if (cut <= 0 || cut >= text.length) {
    return (
      <span class="ss-elided" title={text}>
        <span class="ss-elided-tail">{text}</span>
      </span>
    );
  }
  return (
    <span class="ss-elided" title={text}>
      <span class="ss-elided-head">{text.slice(0, cut)}</span>
      <span class="ss-elided-tail">{text.slice(cut)}</span>
    </span>
  );
}
