// op-row.ts: rows of the reports of operations. Pure.
import type { EventDetail } from './event.ts';
import { numberAt, type ReportRow, textAt } from './report.ts';

/** An operation of a compiled program. */
export interface ProgramOp {
  /** `jit_step(8)`; its name or its number alone also leads to the program. */
  readonly program: string;
  /** Name of the instruction: `fusion.3`. */
  readonly op: string;
}

/** Returns the operation of a row of report op-profile or roofline; `undefined` for groups and for what has no time. */
export function programOpOf(row: ReportRow): ProgramOp | undefined {
  const op = textAt(row, 'op');
  return op === undefined || op === '' || numberAt(row, 'time_ns') === undefined
    ? undefined
    : { program: textAt(row, 'program') ?? '', op };
}

/** Returns the operation that an event of the timeline executes, from its arguments. */
export function programOpOfEvent({ name, args }: Pick<EventDetail, 'name' | 'args'>): ProgramOp | undefined {
  const textOf = (key: string): string => {
    const value = args.find(([known]) => known === key)?.[1];
    return typeof value === 'string' || typeof value === 'number' ? String(value) : '';
  };
  const module = textOf('hlo_module');
  const id = textOf('program_id');
  // Operations on a TPU have the instruction as their name.
  const op = textOf('hlo_op') || (id !== '' && textOf('hlo_category') !== '' ? name : '');
  if (op === '' || (module === '' && id === '')) return undefined;
  return { program: module === '' ? id : id === '' || module.endsWith(')') ? module : `${module}(${id})`, op };
}

/** Returns the names of a row's events in the timeline. */
export function opNames(row: ReportRow): readonly string[] {
  const names = row['event_names'];
  if (Array.isArray(names)) return names.filter((name): name is string => typeof name === 'string');
  const name = textAt(row, 'name') ?? textAt(row, 'action') ?? textAt(row, 'function');
  return name === undefined ? [] : [name];
}
