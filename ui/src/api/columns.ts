// columns.ts: reads the server's column format. Columns are views into the response's buffer, without a copy.
//
//   "SSC1" | u32 header length | header JSON, space-padded to 8 | columns, each 8-aligned, little endian
//
// Offsets count from the first column byte. All offsets are checked before a view is created: a malformed response is
// an error with a cause, never garbage on the screen.
import { asArray, asNumber, asObject, asText, type JsonObject } from '../base/json.ts';

export type Column = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float32Array | Float64Array;

export interface Columns {
  readonly rows: number;
  /** Header fields such as `binNs`. */
  readonly header: JsonObject;
  readonly strings: readonly string[];
  /** Displayed text of each string: the short name of a C++ function, else the string itself. */
  readonly labels: readonly string[];
  readonly columns: ReadonlyMap<string, Column>;
  readonly bytes: number;
}

/** The response is not in the column format, or is truncated. */
export class ColumnError extends Error {
  override readonly name = 'ColumnError';
}

const MAGIC = 0x31435353; // "SSC1" read as a little-endian u32

const VIEWS = {
  u8: { size: 1, make: (b: ArrayBuffer, o: number, n: number): Column => new Uint8Array(b, o, n) },
  u16: { size: 2, make: (b: ArrayBuffer, o: number, n: number): Column => new Uint16Array(b, o, n) },
  u32: { size: 4, make: (b: ArrayBuffer, o: number, n: number): Column => new Uint32Array(b, o, n) },
  i32: { size: 4, make: (b: ArrayBuffer, o: number, n: number): Column => new Int32Array(b, o, n) },
  f32: { size: 4, make: (b: ArrayBuffer, o: number, n: number): Column => new Float32Array(b, o, n) },
  f64: { size: 8, make: (b: ArrayBuffer, o: number, n: number): Column => new Float64Array(b, o, n) },
} as const;

const isType = (type: string | undefined): type is keyof typeof VIEWS => type !== undefined && type in VIEWS;

export function decodeColumns(buffer: ArrayBuffer): Columns {
  if (buffer.byteLength < 8) throw new ColumnError(`answer of ${buffer.byteLength} bytes is too short for a header`);
  const data = new DataView(buffer);
  if (data.getUint32(0, true) !== MAGIC) {
    throw new ColumnError(
      `expected the magic "SSC1", found 0x${data.getUint32(0, true).toString(16).padStart(8, '0')}`,
    );
  }
  const headerBytes = data.getUint32(4, true);
  const base = 8 + headerBytes;
  if (base > buffer.byteLength) {
    throw new ColumnError(`header of ${headerBytes} bytes does not fit an answer of ${buffer.byteLength}`);
  }
  if (base % 8 !== 0) throw new ColumnError(`columns begin at byte ${base}, not at a multiple of 8`);
  let header: JsonObject | undefined;
  try {
    header = asObject(JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, headerBytes))));
  } catch (error) {
    throw new ColumnError(`header is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  const rows = asNumber(header?.['rows']);
  if (header === undefined || rows === undefined || rows < 0 || !Number.isInteger(rows)) {
    throw new ColumnError('header has no valid "rows"');
  }
  const strings = asArray(header['strings']).map((text) => asText(text) ?? '');
  const short = asObject(header['short']) ?? {};
  const labels = strings.map((text, at) => asText(short[at]) ?? text);
  const columns = new Map<string, Column>();
  for (const item of asArray(header['cols'])) {
    const column = asObject(item);
    const name = asText(column?.['n']);
    const type = asText(column?.['t']);
    const offset = asNumber(column?.['o']);
    if (name === undefined || offset === undefined) throw new ColumnError('a column has no name or no offset');
    if (!isType(type)) throw new ColumnError(`column ${name} has the unknown type ${String(type)}`);
    const view = VIEWS[type];
    if (offset < 0 || offset % 8 !== 0 || !Number.isInteger(offset)) {
      throw new ColumnError(`column ${name} begins at ${offset}, not at a multiple of 8`);
    }
    if (base + offset + rows * view.size > buffer.byteLength) {
      throw new ColumnError(
        `column ${name} ends at byte ${base + offset + rows * view.size} of an answer of ${buffer.byteLength}`,
      );
    }
    const made = view.make(buffer, base + offset, rows);
    if (column?.['d'] === 1 && rows > 0) checkDictionary(name, made, strings.length);
    columns.set(name, made);
  }
  return { rows, header, strings, labels, columns, bytes: buffer.byteLength };
}

function checkDictionary(name: string, column: Column, strings: number): void {
  for (let at = 0; at < column.length; at += 1) {
    if ((column[at] ?? 0) >= strings) {
      throw new ColumnError(`column ${name} names string ${column[at]} of ${strings} in row ${at}`);
    }
  }
}

/** Returns a required column of the given type. */
export function column<T extends Column>(columns: Columns, name: string, type: new (length: number) => T): T {
  const found = columns.columns.get(name);
  if (!(found instanceof type)) throw new ColumnError(`the answer has no column ${name} of type ${type.name}`);
  return found;
}
