// badge.tsx: a word that says how far a figure can be trusted, with the reason when it is pointed at or focused.
import type { JSX } from 'preact';

export const Badge = ({ word, why }: { readonly word: string; readonly why: string }): JSX.Element => (
  <span class="ss-badge ss-badge-why" role="note" tabIndex={0} aria-label={`${word}: ${why}`} data-why={why}>
    {word}
  </span>
);
