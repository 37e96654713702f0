// table.tsx: the rows of the run list: sortable, with several runs of one job in one expandable row.
import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { formatBytes, formatCount, formatDuration, formatRecorded, plural } from '../../base/format.ts';
import { below } from '../../base/place.ts';
import { cutsOf } from '../../model/elide.ts';
import type { RunSummary } from '../../model/run.ts';
import { isJob, type Job, jobsOf, type RunColumn, type RunSort, sharedFolder } from '../../model/run-list.ts';
import { importProgress } from '../../state/lists.ts';
import { Elided } from '../../widgets/elided.tsx';
import { Icon } from '../../widgets/icon.tsx';

const COLUMNS: readonly {
  readonly id: RunColumn;
  readonly title: string;
  readonly class?: string;
  readonly numeric?: boolean;
}[] = [
  { id: 'name', title: 'Name' },
  { id: 'kind', title: 'Kind' },
  { id: 'hosts', title: 'Hosts', class: 'ss-num ss-wide-only', numeric: true },
  { id: 'devices', title: 'Devices', class: 'ss-num ss-wide-only', numeric: true },
  { id: 'steps', title: 'Steps', class: 'ss-num', numeric: true },
  { id: 'step_time', title: 'Step time', class: 'ss-num', numeric: true },
  { id: 'length', title: 'Length', class: 'ss-num', numeric: true },
  { id: 'recorded', title: 'Recorded', numeric: true },
  { id: 'size', title: 'Size', class: 'ss-num ss-wide-only', numeric: true },
];

export function RunTable({
  runs,
  latest,
  sort,
  onSort,
  unfolded,
  chosen,
  onChoose,
  onOpen,
}: {
  readonly runs: readonly RunSummary[];
  readonly latest: string | undefined;
  readonly sort: RunSort;
  readonly onSort: (sort: RunSort) => void;
  /** All jobs are expanded, because a filter is active. */
  readonly unfolded: boolean;
  readonly chosen: ReadonlySet<string>;
  readonly onChoose: (id: string) => void;
  readonly onOpen: (id: string) => void;
}): JSX.Element {
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const rows = useMemo(() => jobsOf(runs), [runs]);
  const folder = useMemo(() => sharedFolder(runs), [runs]);
  const cuts = useMemo(() => cutsOf(runs.map(({ name }) => name)), [runs]);
  const jobCuts = useMemo(() => cutsOf(rows.map(({ name }) => name)), [rows]);
  const toggle = (job: string) => {
    const next = new Set(opened);
    if (!next.delete(job)) next.add(job);
    setOpened(next);
  };
  const rowOf = (run: RunSummary, cut: number, isPart: boolean) => (
    <RunRow
      key={run.id}
      run={run}
      cut={cut}
      shared={cuts.get(run.name) ?? 0}
      isPart={isPart}
      latest={run.id === latest}
      chosen={chosen.has(run.id)}
      onChoose={() => onChoose(run.id)}
      onOpen={() => onOpen(run.id)}
    />
  );
  return (
    <div class="ss-run-table">
      <table>
        <caption class="ss-hidden">Runs</caption>
        <thead>
          <tr>
            <th scope="col" class="ss-check-cell">
              <span class="ss-hidden">Selected</span>
            </th>
            {COLUMNS.map((column) => {
              const isSorted = sort.column === column.id;
              return (
                <th
                  key={column.id}
                  scope="col"
                  class={column.class}
                  aria-sort={!isSorted ? 'none' : sort.descending ? 'descending' : 'ascending'}
                >
                  <button
                    type="button"
                    class="ss-sort"
                    onClick={() =>
                      onSort({
                        column: column.id,
                        descending: isSorted ? !sort.descending : column.numeric === true,
                      })
                    }
                  >
                    {column.title}
                    {column.id === 'name' && folder !== '' ? <small> in {folder}</small> : undefined}
                    <span aria-hidden="true" class="ss-sort-mark">
                      {!isSorted ? '' : sort.descending ? '↓' : '↑'}
                    </span>
                  </button>
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) =>
            isJob(row) ? (
              <>
                <JobRow
                  key={`job ${row.name}`}
                  job={row}
                  cut={folder.length}
                  shared={jobCuts.get(row.name) ?? 0}
                  isOpen={unfolded || opened.has(row.name)}
                  onToggle={() => toggle(row.name)}
                />
                {unfolded || opened.has(row.name)
                  ? row.runs.map((run) => rowOf(run, run.name.lastIndexOf('/') + 1, true))
                  : undefined}
              </>
            ) : (
              rowOf(row, folder.length, false)
            ),
          )}
        </tbody>
      </table>
    </div>
  );
}

function JobRow({
  job,
  cut,
  shared,
  isOpen,
  onToggle,
}: {
  readonly job: Job;
  readonly cut: number;
  /** Length of the prefix that its name shares with the most similar other name. */
  readonly shared: number;
  readonly isOpen: boolean;
  readonly onToggle: () => void;
}): JSX.Element {
  const kinds = [...new Set(job.runs.flatMap((run) => run.kinds))];
  const recorded = Math.max(...job.runs.map((run) => run.recordedUnixMs ?? Number.NEGATIVE_INFINITY));
  const bytes = job.runs.reduce((sum, run) => sum + run.bytes, 0);
  return (
    <tr data-testid="job-row" data-job={job.name} class="ss-row-link" onClick={onToggle}>
      <td class="ss-check-cell" />
      <th scope="row">
        <div class="ss-run-name">
          <button
            type="button"
            class="ss-tree-toggle"
            aria-expanded={isOpen}
            aria-label={`${isOpen ? 'Fold' : 'Unfold'} ${job.name}`}
            onClick={(event) => {
              event.stopPropagation();
              onToggle();
            }}
          >
            <Icon name={isOpen ? 'chevronDown' : 'chevronRight'} />
          </button>
          <b>
            <Elided text={job.name.slice(cut)} cut={shared - cut} />
          </b>{' '}
          <small class="ss-quiet">{plural(job.runs.length, 'run')}</small>
        </div>
      </th>
      <Kinds kinds={kinds} />
      <td class="ss-wide-only" />
      <td class="ss-wide-only" />
      <td colSpan={3} />
      <td class="ss-recorded">{Number.isFinite(recorded) ? formatRecorded(recorded, Date.now()) : ''}</td>
      <td class="ss-num ss-wide-only">{formatBytes(bytes)}</td>
    </tr>
  );
}

const Kinds = ({ kinds }: { readonly kinds: readonly string[] }): JSX.Element => (
  <td>
    {kinds.map((kind) => (
      <span key={kind} class="ss-badge">
        {kind}
      </span>
    ))}
  </td>
);

/** Returns whether a run has statistics only: Lightning's report texts, cProfile. */
export const isWithoutTimeline = (run: RunSummary): boolean => run.durationNs === undefined && (run.profiles ?? 0) > 0;

function RunRow({
  run,
  cut,
  shared,
  isPart,
  latest,
  chosen,
  onChoose,
  onOpen,
}: {
  readonly run: RunSummary;
  /** Length of the folder prefix that the row omits. */
  readonly cut: number;
  /** Length of the prefix that its name shares with the most similar other name. */
  readonly shared: number;
  /** The row is below its job. */
  readonly isPart: boolean;
  readonly latest: boolean;
  readonly chosen: boolean;
  readonly onChoose: () => void;
  readonly onOpen: () => void;
}): JSX.Element {
  const [details, setDetails] = useState(false);
  const live = importProgress.value.get(run.id);
  const importing = run.state === 'importing' || (live !== undefined && live.done < 1 && run.state === 'listed');
  const progress = live?.done ?? run.progress;
  const text = (value: string | undefined) =>
    value ?? (
      <span class="ss-quiet" title="Known after the run is opened">
        –
      </span>
    );
  return (
    <>
      <tr
        data-testid="run-row"
        data-run={run.id}
        data-state={run.state}
        aria-label={run.name}
        class="ss-row-link"
        onClick={(event) => {
          if (event.target instanceof Element && event.target.closest('input,button,a') === null) onOpen();
        }}
      >
        <td class="ss-check-cell">
          <input type="checkbox" aria-label={`Select ${run.name}`} checked={chosen} onChange={onChoose} />
        </td>
        <th scope="row" class={isPart ? 'ss-run-part' : ''}>
          <div class="ss-run-name">
            <a
              title={run.name}
              href={below(`/run/${encodeURIComponent(run.id)}`)}
              onClick={(event) => {
                if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
                event.preventDefault();
                onOpen();
              }}
            >
              <Elided text={run.name.slice(cut)} cut={shared - cut} />
            </a>
            {latest ? <small class="ss-quiet"> latest</small> : undefined}
            {importing ? (
              <span class="ss-import">
                {live?.phase ?? run.phase ?? 'Reading'}{' '}
                {progress === undefined ? '' : `${Math.round(progress * 100)} %`}
                <progress
                  aria-label={`Import of ${run.name}`}
                  {...(progress === undefined ? {} : { value: progress })}
                  max={1}
                />
              </span>
            ) : undefined}
            {run.state === 'partial' ? <span class="ss-state-partial">partial</span> : undefined}
            {run.state === 'error' ? <span class="ss-state-error">cannot be read</span> : undefined}
          </div>
        </th>
        <Kinds kinds={run.kinds} />
        <td class="ss-num ss-wide-only" title={run.hosts.join(', ')}>
          {text(run.hosts.length === 0 ? undefined : formatCount(run.hosts.length))}
        </td>
        <td class="ss-num ss-wide-only">{text(run.devices === undefined ? undefined : formatCount(run.devices))}</td>
        {isWithoutTimeline(run) ? (
          <td
            class="ss-num ss-quiet"
            colSpan={3}
            title="This file holds counts and totals without timestamps. It opens at Ops."
          >
            aggregates only
          </td>
        ) : (
          <>
            <td class="ss-num">{text(run.steps === undefined ? undefined : formatCount(run.steps))}</td>
            <td class="ss-num">{text(run.stepNs === undefined ? undefined : formatDuration(run.stepNs))}</td>
            <td class="ss-num">{text(run.durationNs === undefined ? undefined : formatDuration(run.durationNs))}</td>
          </>
        )}
        <td class="ss-recorded">
          {text(run.recordedUnixMs === undefined ? undefined : formatRecorded(run.recordedUnixMs, Date.now()))}
        </td>
        <td class="ss-num ss-wide-only">{formatBytes(run.bytes)}</td>
      </tr>
      {run.fault === undefined ? undefined : (
        <tr class="ss-fault-row">
          <td />
          <td colSpan={9}>
            <div data-testid={run.state === 'error' ? 'error-state' : 'partial-state'} class="ss-fault">
              <Icon name="warning" />
              <span>
                <strong class="ss-mono">{run.fault.file}</strong>: {run.fault.reason}
                {run.fault.offset === undefined ? '' : ` (at byte ${formatCount(run.fault.offset)})`}
                {details && run.fault.hint !== undefined ? <em> {run.fault.hint}</em> : undefined}
              </span>
              {run.fault.hint === undefined || details ? undefined : (
                <button type="button" class="ss-link" onClick={() => setDetails(true)}>
                  What to do
                </button>
              )}
              <button type="button" class="ss-link" onClick={onOpen}>
                Show what was readable
              </button>
            </div>
          </td>
        </tr>
      )}
    </>
  );
}
