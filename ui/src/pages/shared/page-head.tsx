// page-head.tsx: title, one sentence, and the current limits.
import type { ComponentChildren, JSX } from 'preact';

export function PageHead(props: {
  readonly title: string;
  readonly summary: ComponentChildren;
  readonly side?: ComponentChildren;
}): JSX.Element {
  return (
    <header class="ss-page-head">
      <div class="ss-page-title">
        <h1>{props.title}</h1>
        <div class="ss-page-side">{props.side}</div>
      </div>
      <p data-testid="page-summary">{props.summary}</p>
    </header>
  );
}
