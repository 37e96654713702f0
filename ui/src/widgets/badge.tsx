// badge.tsx: a badge with the confidence of a figure; its reason is shown on hover or focus.
import type { JSX } from 'preact';

export const Badge = ({ word, why }: { readonly word: string; readonly why: string }): JSX.Element => (
  <span class="ss-badge ss-badge-why" role="note" tabIndex={0} aria-label={`${word}: ${why}`} data-why={why}>
    {word}
  </span>
);
