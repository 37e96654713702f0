// states.tsx: the states of a page without content: empty, failed, or loading.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { copyText } from './download.ts';

export type EmptyReason = 'not-recorded' | 'no-match' | 'unsupported' | 'filtered-out';

export function EmptyState(props: {
  readonly reason: EmptyReason;
  readonly title: string;
  readonly why: string;
  readonly children?: ComponentChildren;
}): JSX.Element {
  return (
    <div class="ss-empty" data-testid="empty-state" data-reason={props.reason}>
      <h2>{props.title}</h2>
      <p>{props.why}</p>
      {props.children}
    </div>
  );
}

/** Capitalises a text of the server, except for a path. */
const sentence = (text: string): string =>
  /^[a-z]+\b(?![/.:=])/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;

/** Matches hints for HTTP clients; they are only in the copied details. */
const FOR_PROGRAMS = /^(GET|POST|PUT|DELETE) \//;

export function ErrorState(props: {
  readonly title: string;
  readonly detail: string;
  readonly where?: string | undefined;
  readonly hint?: string | undefined;
  readonly report: string;
  readonly children?: ComponentChildren;
}): JSX.Element {
  const [copied, setCopied] = useState(false);
  return (
    <div class="ss-error" role="alert" data-testid="error-state">
      <h2>{sentence(props.title)}</h2>
      <p>{sentence(props.detail)}</p>
      {props.where === undefined ? undefined : <p class="ss-mono">{props.where}</p>}
      {props.hint === undefined || FOR_PROGRAMS.test(props.hint) ? undefined : <p>{sentence(props.hint)}</p>}
      <div class="ss-row">
        {props.children}
        <button type="button" class="ss-button" onClick={async () => setCopied(await copyText(props.report))}>
          {copied ? 'Copied' : 'Copy details'}
        </button>
      </div>
    </div>
  );
}

/** A displayed problem of the server. */
export interface ShownProblem {
  readonly title: string;
  readonly detail: string;
  readonly where?: string | undefined;
  readonly hint?: string | undefined;
  readonly report: string;
}

export const ProblemState = ({
  problem,
  children,
}: {
  readonly problem: ShownProblem;
  readonly children?: ComponentChildren;
}): JSX.Element => (
  <ErrorState
    title={problem.title}
    detail={problem.detail}
    hint={problem.hint}
    where={problem.where}
    report={problem.report}
  >
    {children}
  </ErrorState>
);

/** Shows nothing for 150 ms, then a line; after 2 s also the phase. */
export function Loading(props: {
  readonly what: string;
  readonly phase?: string | undefined;
  readonly progress?: number | undefined;
  /** Shown with the phase: for example a cancel button. */
  readonly children?: ComponentChildren;
}): JSX.Element | undefined {
  const [age, setAge] = useState<'new' | 'short' | 'long'>('new');
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const short = setTimeout(() => setAge('short'), 150);
    const long = setTimeout(() => setAge('long'), 2000);
    const clock = setInterval(() => setSeconds((passed) => passed + 1), 1000);
    return () => {
      clearTimeout(short);
      clearTimeout(long);
      clearInterval(clock);
    };
  }, []);
  if (age === 'new') return undefined;
  const share = props.progress === undefined ? '' : ` ${Math.round(props.progress * 100)} %`;
  return (
    <div class="ss-loading" role="status">
      <span>
        {props.what}
        {age === 'long' && props.phase !== undefined ? ` · ${props.phase}${share}` : ''} …
        {/* Hidden from screen readers: it changes every second. */}
        {age === 'long' ? (
          <span class="ss-quiet ss-tabular" aria-hidden="true">
            {' '}
            {seconds} s
          </span>
        ) : undefined}
      </span>
      <progress aria-label={props.what} {...(props.progress === undefined ? {} : { value: props.progress })} max={1} />
      {age === 'long' ? <div>{props.children}</div> : undefined}
    </div>
  );
}

export function CopyButton(props: { readonly text: string; readonly label?: string }): JSX.Element {
  const [copied, setCopied] = useState(false);
  return (
    <button
      type="button"
      class="ss-button ss-small"
      onClick={async () => {
        setCopied(await copyText(props.text));
        setTimeout(() => setCopied(false), 1500);
      }}
    >
      {copied ? 'Copied' : (props.label ?? 'Copy')}
    </button>
  );
}
