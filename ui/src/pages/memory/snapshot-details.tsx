// snapshot-details.tsx: what the snapshot has about the chosen allocation, segment or free block: sizes, events, stack.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { createResource } from '../../api/resource.ts';
import { fetchAllocation } from '../../api/snapshot.ts';
import { formatBytes, formatDuration, groupDigits } from '../../base/format.ts';
import {
  type AllocationDetail,
  blockAddress,
  type SnapshotBlock,
  type SnapshotSegment,
  type StackFrame,
  stateWord,
} from '../../model/snapshot.ts';
import { CopyButton, Loading, ProblemState } from '../../widgets/states.tsx';
import type { PageProps } from '../shared/report.tsx';
import { segmentKind } from './segment-map.tsx';

/** Files of libraries, as the server knows them. */
const LIBRARY = /(^|\/)torch\/|site-packages|dist-packages|contextlib|threading/;

/** PyTorch's file of a function without one. */
const NO_FILE: ReadonlySet<string> = new Set(['', '??']);

/** Whether a frame is a Python function of the program. A converted profile has `train.py(31): step` as the name. */
const isOwn = ({ name, file }: StackFrame): boolean => {
  const path = file.endsWith('.py') ? file : (/^(.*\.py)\(\d+\)/.exec(name)?.[1] ?? '');
  return path !== '' && !LIBRARY.test(path);
};

/** The stack, innermost function first; those of libraries are dimmed. */
export function Stack({ frames, label }: { readonly frames: readonly StackFrame[]; readonly label: string }) {
  if (frames.length === 0) return <p class="ss-quiet">The stack is not in the file.</p>;
  const text = frames.map(({ name, file, line }) => `${name} (${file}:${line})`).join('\n');
  return (
    <>
      <div class="ss-row">
        <h3>{label}</h3>
        <span class="ss-grow" />
        <CopyButton text={text} />
      </div>
      <ol class="ss-stack" aria-label={label}>
        {frames.map((frame, at) => (
          <li key={at} class={isOwn(frame) ? 'ss-own' : ''}>
            <span>{frame.name}</span>
            {NO_FILE.has(frame.file) ? undefined : (
              <span class="ss-quiet">{frame.line === 0 ? frame.file : `${frame.file}:${frame.line}`}</span>
            )}
          </li>
        ))}
      </ol>
    </>
  );
}

function Facts({ facts }: { readonly facts: readonly (readonly [string, ComponentChildren])[] }): JSX.Element {
  return (
    <dl class="ss-facts">
      {facts.map(([name, value]) =>
        value === undefined || value === '' ? undefined : (
          <>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </>
        ),
      )}
    </dl>
  );
}

export function AllocationDetails({
  page,
  allocator,
  id,
  block,
  onEvent,
}: {
  readonly page: PageProps;
  readonly allocator: number;
  readonly id: number;
  /** Its block at the cursor. */
  readonly block: SnapshotBlock | undefined;
  onEvent(event: number): void;
}): JSX.Element {
  const { run } = page;
  const resource = useMemo(() => createResource<AllocationDetail>(), [run.contentHash]);
  useEffect(() => {
    resource.load(`${run.contentHash}/${allocator}/${id}`, (signal) =>
      fetchAllocation(run.id, run.contentHash, { allocator, id }, { signal }),
    );
  }, [resource, allocator, id]);
  const { value, problem } = resource.state.value;
  if (problem !== undefined) return <ProblemState problem={problem} />;
  if (value === undefined) return <Loading what="Reading the allocation" />;
  const eventOf = (event: number | undefined, ns: number | undefined): ComponentChildren =>
    event === undefined ? undefined : (
      <>
        <button type="button" class="ss-link" onClick={() => onEvent(event)}>
          event {groupDigits(`${event}`)}
        </button>
        {ns === undefined ? '' : ` · ${formatDuration(ns)}`}
      </>
    );
  return (
    <section data-testid="allocation-details" data-allocation={value.id} aria-label="Chosen allocation">
      <h2>Allocation of {formatBytes(value.bytes)}</h2>
      <Facts
        facts={[
          ['Requested', `${groupDigits(`${value.bytes}`)} B`],
          ['Block', block === undefined ? undefined : `${formatBytes(block.bytes)}, ${stateWord(block.state)}`],
          ['Address', value.address],
          ['Stream', value.stream],
          ['Category', value.category],
          ['User metadata', value.userMetadata],
          ['Compile context', value.compileContext],
          ['Allocated', eventOf(value.allocEvent, value.allocNs) ?? 'before the history'],
          ['Free requested', eventOf(value.freeRequestedEvent, undefined)],
          ['Freed', eventOf(value.freeEvent, value.freeNs) ?? 'never'],
        ]}
      />
      <Stack frames={value.frames} label="Allocated by" />
      {value.freeFrames.length === 0 ? undefined : (
        <details class="ss-free-stack">
          <summary>Freed by</summary>
          <Stack frames={value.freeFrames} label="Freed by" />
        </details>
      )}
    </section>
  );
}

/** A segment, or a free block in it. */
export function SegmentDetails({
  segment,
  block,
}: {
  readonly segment: SnapshotSegment;
  readonly block: SnapshotBlock | undefined;
}): JSX.Element {
  const split = segment.activeBytes > 0 ? 'inactive split: the segment has an active block' : 'inactive';
  return (
    <section data-testid="segment-details" aria-label="Chosen segment">
      {block === undefined ? undefined : (
        <>
          <h2>Free block of {formatBytes(block.bytes)}</h2>
          <Facts
            facts={[
              ['State', split],
              ['Size', `${groupDigits(`${block.bytes}`)} B`],
              ['Address', blockAddress(segment, block)],
            ]}
          />
        </>
      )}
      <h2>Segment of {formatBytes(segment.bytes)}</h2>
      <Facts
        facts={[
          ['Kind', segmentKind(segment)],
          ['Address', segment.address],
          ['Active', formatBytes(segment.activeBytes)],
          ['Not active', formatBytes(Math.max(0, segment.bytes - segment.activeBytes))],
          ['Largest free block', formatBytes(segment.largestFreeBytes)],
          ['Blocks', String(segment.blocks.length)],
        ]}
      />
      <Stack frames={segment.frames} label="Reserved by" />
    </section>
  );
}
