// markdown.ts: reports as text for mail, issues and notebooks. Pure.
import { formatCount } from '../../base/format.ts';
import { cellText, isNumeric } from '../../model/cell.ts';
import {
  type Cell,
  type ReportTable as Data,
  filledColumns,
  numberAt,
  type Report,
  type ReportSection,
  shortColumn,
  textAt,
} from '../../model/report.ts';
import { plainText } from '../../model/sentence.ts';

/** Maximum number of table rows in a text. */
const TEXT_ROWS = 40;
/** Maximum number of table rows in the summary. */
const SUMMARY_ROWS = 10;

/** Formats a table as Markdown; cells keep their units. */
export function markdownTable(table: Data, most = TEXT_ROWS): string {
  const columns = filledColumns(table).filter((column) => column.unit !== 'event');
  if (columns.length === 0) return '';
  const cell = (text: string) => text.replaceAll('|', '\\|').replaceAll(/\s+/g, ' ');
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  return [
    line(columns.map((column) => cell(column.title))),
    line(columns.map((column) => (isNumeric(column.unit) ? '---:' : '---'))),
    ...table.rows
      .slice(0, most)
      .map((row) =>
        line(columns.map((column) => cell(cellText(row[(shortColumn(table, column.key) ?? column).key], column.unit)))),
      ),
    ...(table.rows.length > most ? [`\n${formatCount(table.rows.length - most)} more rows`] : []),
  ].join('\n');
}

/** Formats a whole report as Markdown. */
export function markdownOf(report: Report, title: string): string {
  const parts = [`# ${title}`, plainText(report.sentence)];
  parts.push(figuresOf(report));
  if (report.missing !== undefined) parts.push(report.missing.fix);
  if (report.table.rows.length > 0) parts.push(markdownTable(report.table));
  for (const section of report.sections) {
    if (section.rows.length > 0) parts.push(`## ${section.title}`, markdownTable(section));
  }
  if (report.notes.length > 0) parts.push(report.notes.map((note) => `> ${plainText(note)}`).join('\n'));
  return `${parts.filter((part) => part !== '').join('\n\n')}\n`;
}

/** Formats one line per figure; a figure with the title `of` is appended to the previous one. */
function figuresOf(report: Report): string {
  const lines: string[] = [];
  for (const { title, value, unit } of report.summary) {
    if (value === undefined || unit === 'event') continue;
    const last = lines.length - 1;
    if (title === 'of' && last >= 0) lines[last] += ` of ${cellText(value, unit)}`;
    else lines.push(`- ${title}: ${cellText(value, unit)}`);
  }
  return lines.join('\n');
}

/** Converts sentences to text, and removes columns and rows of zeros. */
function withSentencesAsText(table: Data): Data {
  const isTold = (cell: Cell) => cell !== undefined && cell !== 0 && cell !== false && cell !== '';
  const columns = table.columns.filter((column) => table.rows.some((row) => isTold(row[column.key])));
  const numbers = columns.filter((column) => isNumeric(column.unit));
  const rows = table.rows.filter((row) => numbers.length === 0 || numbers.some((column) => isTold(row[column.key])));
  return { columns, rows, leftOut: table.leftOut };
}

/** Returns the longest steps, in the order of the run, without their length on the device. */
function shortened(section: ReportSection): Data {
  const columns = section.columns.filter(({ key }) => key !== 'device_step_ns');
  if (section.name !== 'steps' || section.rows.length <= SUMMARY_ROWS) return { ...section, columns };
  const longest = [...section.rows]
    .sort((a, b) => (numberAt(b, 'duration_ns') ?? 0) - (numberAt(a, 'duration_ns') ?? 0))
    .slice(0, SUMMARY_ROWS);
  const chosen = new Set(longest);
  return { ...section, columns, rows: section.rows.filter((row) => chosen.has(row)) };
}

/** Formats the overview as Markdown: figures, findings, and the shorter tables. */
export function summaryMarkdown(overview: Report, title: string): string {
  const findings = overview.table.rows.map((row, at) => {
    const sure = textAt(row, 'confidence');
    const advice = textAt(row, 'advice');
    const name = textAt(row, 'title') ?? textAt(row, 'name') ?? '';
    return `${at + 1}. **${name}**${sure === undefined ? '' : ` (confidence: ${sure})`}${advice === undefined ? '' : `\n   ${advice}`}`;
  });
  const parts = [`# ${title}`, plainText(overview.sentence), figuresOf(overview)];
  if (findings.length > 0) parts.push('## What to look at first', findings.join('\n'));
  for (const section of overview.sections) {
    if (section.rows.length > 0)
      parts.push(`## ${section.title}`, markdownTable(withSentencesAsText(shortened(section)), SUMMARY_ROWS));
  }
  if (overview.notes.length > 0) parts.push(overview.notes.map((note) => `> ${plainText(note)}`).join('\n'));
  return `${parts.filter((part) => part !== '').join('\n\n')}\n`;
}
