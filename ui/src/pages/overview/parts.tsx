// parts.tsx: findings, where the time goes, the most expensive operations, and the environment.
import type { JSX } from 'preact';
import { formatBytes, formatCount, formatDuration, formatShare } from '../../base/format.ts';
import { cellText } from '../../model/cell.ts';
import { OTHER_COLOUR } from '../../model/label-stack.ts';
import {
  eventsAt,
  isSentence,
  labelAt,
  nameColumn,
  numberAt,
  type ReportColumn,
  type ReportRow,
  type ReportSection,
  type ReportTable,
  rowKeys,
  tellingColumn,
  tellingText,
  textAt,
} from '../../model/report.ts';
import type { RunDetail } from '../../model/run.ts';
import { type Sentence, textSentence } from '../../model/sentence.ts';
import { bucketColour, bucketOf } from '../../model/step-buckets.ts';
import { figurePage, filledPage, toolOf } from '../../model/tools.ts';
import { goTo } from '../../state/store.ts';
import { BarList, WholeBar } from '../../widgets/charts.tsx';
import { ReportTable as DataTable } from '../../widgets/report-table.tsx';
import { eventLinkOf, nameView, PageLink } from '../shared/links.tsx';
import type { PageProps } from '../shared/report.tsx';
import { FIGURE_TITLE, SentenceText } from '../shared/sentence.tsx';
import type { ByLabel } from './labels.tsx';

function Finding({ row, page }: { readonly row: ReportRow; readonly page: PageProps }): JSX.Element {
  const { store, run } = page;
  const cell = row['title'];
  const title = isSentence(cell) ? cell : textSentence(textAt(row, 'title') ?? '');
  const tool = toolOf(textAt(row, 'page') ?? '');
  const events = eventsAt(row, 'evidence').slice(0, 3);
  const link = eventLinkOf(store, run);
  const confidence = textAt(row, 'confidence');
  const advice = textAt(row, 'advice');
  const saving = savingOf(row, title);
  return (
    <li data-finding={textAt(row, 'kind') ?? textAt(row, 'name')}>
      <h3>
        <SentenceText page={page} sentence={title} />
      </h3>
      {advice === undefined ? undefined : <p>{advice}</p>}
      <span class="ss-row">
        {saving === undefined ? undefined : <b class="ss-tabular">{saving}</b>}
        {events.length === 0 ? undefined : (
          <span>
            {events.length === 1 ? undefined : 'Timeline: '}
            {events.map((id, at) => (
              <span key={id}>
                {at === 0 ? '' : ', '}
                {link(id, events.length === 1 ? 'Show in the timeline' : `example ${at + 1}`)}
              </span>
            ))}
          </span>
        )}
        {tool === undefined || filledPage(run, tool.id) === 'timeline' ? undefined : (
          <PageLink {...page} tool={tool.id}>
            {tool.title}
          </PageLink>
        )}
        {confidence === undefined ? undefined : <span class="ss-quiet">confidence: {confidence}</span>}
      </span>
    </li>
  );
}

/** Returns the potential saving; `undefined` if it is zero, or if the title states it. Pure. */
export function savingOf(row: ReportRow, title: Sentence): string | undefined {
  const perStep = numberAt(row, 'saving_per_step_ns') ?? numberAt(row, 'per_step_ns');
  const saving = perStep ?? numberAt(row, 'saving_ns');
  if (saving === undefined || saving <= 0) return undefined;
  if (title.parts.some(({ value, unit }) => unit === 'ns' && value === saving)) return undefined;
  const text = formatDuration(saving);
  const share = numberAt(row, 'share');
  return [
    `${text}${perStep === undefined ? '' : ' per step'}`,
    ...(share === undefined ? [] : [formatShare(share)]),
  ].join(' · ');
}

/** Findings, by potential saving. */
export function Findings({ table, ...page }: PageProps & { readonly table: ReportTable }): JSX.Element {
  return (
    <section class="ss-panel" aria-label="What to look at first" data-testid="findings">
      <h2>What to look at first</h2>
      {table.rows.length === 0 ? (
        <p class="ss-quiet">Nothing stands out: no cause is worth a change.</p>
      ) : (
        <ol class="ss-findings">
          {table.rows.map((row) => (
            <Finding key={textAt(row, 'title') ?? textAt(row, 'name')} row={row} page={page} />
          ))}
        </ol>
      )}
    </section>
  );
}

/** Rows of a label and a duration, as one bar. */
export function TimeParts({
  section,
  labels,
  ...page
}: PageProps & {
  readonly section: ReportSection | undefined;
  /** Labels of the program, in place of the buckets. */
  readonly labels: ByLabel['shares'];
}): JSX.Element | undefined {
  if (labels.length > 0)
    return <LabelParts {...page} title={section?.title ?? 'Where the time goes'} labels={labels} />;
  if (section === undefined || section.rows.length === 0) return undefined;
  const name = nameColumn(section);
  const time =
    section.columns.find(
      (column) => column.key === 'per_step_ns' && section.rows.some((row) => row[column.key] !== undefined),
    ) ?? section.columns.find((column) => column.unit === 'ns');
  if (name === undefined || time === undefined) return undefined;
  const rows = section.rows.filter((row) => (numberAt(row, time.key) ?? 0) > 0);
  const whole = rows.reduce((sum, row) => sum + (numberAt(row, time.key) ?? 0), 0);
  return (
    <section class="ss-panel" aria-label={section.title} data-testid="time-parts">
      <div class="ss-panel-head">
        <h2>{section.title}</h2>
        <span class="ss-quiet">{time.key === 'per_step_ns' ? 'per step' : 'of the recording'}</span>
      </div>
      <WholeBar
        label={section.title}
        segments={rows.map((row) => {
          const word = textAt(row, name.key) ?? '';
          const value = numberAt(row, time.key) ?? 0;
          const part = bucketOf(word.toLowerCase().replaceAll(' ', '_'));
          const text = `${formatDuration(value)} · ${formatShare(whole === 0 ? 0 : value / whole)}`;
          return {
            label: part?.label ?? word,
            value,
            text,
            shown: (
              <span class="ss-value-link">
                <PageLink {...page} {...figurePage(page.run, `${part?.id ?? ''}_ns`)} title={FIGURE_TITLE}>
                  {text}
                </PageLink>
              </span>
            ),
            colour: bucketColour(part),
          };
        })}
      />
    </section>
  );
}

function LabelParts({
  title,
  labels,
  ...page
}: PageProps & { readonly title: string; readonly labels: ByLabel['shares'] }): JSX.Element {
  const whole = labels.reduce((sum, { perStepNs }) => sum + perStepNs, 0);
  return (
    <section class="ss-panel" aria-label={title} data-testid="time-parts">
      <div class="ss-panel-head">
        <h2>{title}</h2>
        <span class="ss-quiet">self time of labels, per step</span>
      </div>
      <WholeBar
        label={title}
        segments={labels.map(({ label, perStepNs, colour }) => {
          const text = `${formatDuration(perStepNs)} · ${formatShare(whole === 0 ? 0 : perStepNs / whole)}`;
          const isLabel = colour !== OTHER_COLOUR;
          return {
            label,
            value: perStepNs,
            text,
            colour,
            shown: isLabel ? (
              <span class="ss-value-link">
                <PageLink
                  {...page}
                  tool="timeline"
                  view={nameView(label)}
                  title={`Show every ${label} in the timeline`}
                >
                  {text}
                </PageLink>
              </span>
            ) : undefined,
          };
        })}
      />
    </section>
  );
}

/** The slices of a run without ML activity, by name and track. */
export function SliceNames({ section, ...page }: PageProps & { readonly section: ReportSection }): JSX.Element {
  return (
    <section class="ss-panel ss-slice-names" aria-label={section.title} data-testid="slice-names">
      <h2>{section.title}</h2>
      <DataTable
        caption={section.title}
        exportName={`${page.run.id}-slices`}
        table={section}
        fit
        cell={(row, { key }) => {
          const name = textAt(row, 'name');
          return key !== 'name' || name === undefined ? undefined : (
            <PageLink {...page} tool="timeline" view={nameView(name)} title={`Show every ${name} in the timeline`}>
              {name}
            </PageLink>
          );
        }}
      />
    </section>
  );
}

/** Returns the column that orders the rows: device time if launched, else self time. */
export const rankedBy = (table: ReportTable): ReportColumn | undefined =>
  ['device_self_ns', 'self_ns', 'total_ns']
    .flatMap((key) => table.columns.find((column) => column.key === key) ?? [])
    .find((column) => table.rows.some((row) => (numberAt(row, column.key) ?? 0) > 0));

export function TopOps({
  section,
  ...page
}: PageProps & { readonly section: ReportSection | undefined }): JSX.Element | undefined {
  if (section === undefined || section.rows.length === 0) return undefined;
  const name = nameColumn(section);
  const time = rankedBy(section);
  if (name === undefined || time === undefined) return undefined;
  const keys = rowKeys(section);
  const telling = tellingColumn(section);
  return (
    <section class="ss-panel" aria-label={section.title}>
      <div class="ss-panel-head">
        <h2>{section.title}</h2>
        <span class="ss-quiet">{time.key.startsWith('device') ? 'device time' : 'self time'}</span>
        <span class="ss-grow" />
        <PageLink {...page} tool="ops" view={{ sort: `${time.key}:desc` }}>
          All operations
        </PageLink>
      </div>
      <BarList
        label={section.title}
        rows={section.rows.slice(0, 8).map((row) => ({
          key: keys.get(row) ?? '',
          label: [labelAt(section, row, name.key) ?? '', telling === undefined ? '' : tellingText(row, telling)]
            .filter((text) => text !== '')
            .join(' · '),
          value: numberAt(row, time.key) ?? 0,
          text:
            time.key === 'self_ns' && row['share'] !== undefined
              ? `${cellText(row[time.key], 'ns')} · ${cellText(row['share'], 'share')}`
              : cellText(row[time.key], 'ns'),
        }))}
        onChoose={(key) => {
          const row = section.rows.find((item) => keys.get(item) === key);
          const filter = row === undefined ? undefined : textAt(row, name.key);
          goTo(page.store, { kind: 'tool', run: page.run.id, tool: 'ops' }, { filter: filter ?? '' });
        }}
      />
    </section>
  );
}

/** Maximum number of named files; a run can have thousands of ranks. */
const MOST_SOURCES = 16;
/** Maximum number of named hosts if they differ. */
const MOST_NAMED = 4;

export interface Fact {
  readonly label: string;
  readonly value: string;
  /** The key in the file, and the hosts that have it if not all do. */
  readonly detail: string;
}

/** Formats a fact; adds its hosts if not all share it. Pure. */
export function factOf(row: ReportRow): Fact {
  const key = textAt(row, 'key') ?? '';
  const label = textAt(row, 'label') ?? key;
  const hosts = (Array.isArray(row['hosts']) ? row['hosts'] : []).map(String);
  const more = hosts.length > MOST_NAMED ? ` and ${formatCount(hosts.length - MOST_NAMED)} more` : '';
  const where = hosts.length === 0 ? '' : `${hosts.slice(0, MOST_NAMED).join(', ')}${more}`;
  return {
    label: label.charAt(0).toUpperCase() + label.slice(1),
    value: cellText(row['value'], 'text'),
    detail: [where, label.toLowerCase() === key.toLowerCase() && where === '' ? '' : key]
      .filter((text) => text !== '')
      .join(' · '),
  };
}

const fileOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1);

export function Environment({
  section,
  run,
}: {
  readonly section: ReportSection | undefined;
  readonly run: RunDetail;
}): JSX.Element {
  const facts = [
    ...(section?.rows ?? []).map(factOf),
    ...run.sources.slice(0, MOST_SOURCES).map(
      (source): Fact => ({
        label: fileOf(source.path),
        value: `${source.format}, ${formatBytes(source.bytes)}`,
        detail: source.path,
      }),
    ),
    ...(run.sources.length > MOST_SOURCES
      ? [{ label: 'More files', value: formatCount(run.sources.length - MOST_SOURCES), detail: '' }]
      : []),
  ];
  return (
    <details class="ss-panel ss-environment">
      <summary>
        <h2>{section?.title ?? 'Environment'}</h2>
      </summary>
      <dl class="ss-facts">
        {facts.map(({ label, value, detail }, at) => (
          <div key={at}>
            <dt>
              {label}
              {detail === '' ? undefined : <small>{detail}</small>}
            </dt>
            <dd title={value}>{value}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}
