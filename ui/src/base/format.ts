// format.ts: formats numbers and times. Pure. Always with a unit; three significant digits, or exact.
// The server formats the same way (`report/number_format.rs` of stepscope-report): both pass
// `tests/number_format.json`.

const UNITS = [
  { name: 'ns', ns: 1 },
  { name: 'µs', ns: 1e3 },
  { name: 'ms', ns: 1e6 },
  { name: 's', ns: 1e9 },
] as const;

type TimeUnit = (typeof UNITS)[number];

function unitFor(absoluteNs: number): TimeUnit {
  let found: TimeUnit = UNITS[0];
  for (const unit of UNITS) if (absoluteNs >= unit.ns) found = unit;
  return found;
}

/** Formats three significant digits, two below 0.1, without an exponent: 1.23, 12.3, 123, 1,230. */
export function significant(value: number): string {
  const size = Math.abs(value);
  if (size < 0.5e-15) return '0';
  if (size >= 99.95) return formatCount(value);
  if (size >= 9.995) return value.toFixed(1);
  if (size >= 0.0995) return value.toFixed(2);
  const digits = Math.min(15, Math.max(2, 1 - Math.floor(Math.log10(size))));
  return value.toFixed(digits).replace(/\.?0+$/, '');
}

/** Adds commas between thousands: `1234567` -> `1,234,567`; keeps sign and decimals. */
export function groupDigits(text: string): string {
  const [whole = '', fraction] = text.split('.');
  const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ',');
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}

/** Formats a rounded count. Ties round away from zero like `toFixed`; `Math.round` rounds -0.5 up. */
export const formatCount = (count: number): string =>
  groupDigits((Math.sign(count) * Math.round(Math.abs(count))).toString());

/** Formats a number without a unit: integers in full, others with three significant digits. */
export const formatNumber = (value: number): string =>
  Number.isSafeInteger(value) ? value.toFixed(0) : significant(value);

/** Formats a count with its noun: `1 event`, `2 events`. */
export const plural = (count: number, one: string, many = `${one}s`): string =>
  `${formatCount(count)} ${count === 1 ? one : many}`;

/** Formats a duration with three significant digits like the sentences of reports; the largest unit is the second. */
export function formatDuration(ns: number): string {
  const size = Math.abs(ns);
  if (size === 0) return '0 ns';
  const rounded = unitFor(size);
  // 999.7 µs reads better as 1.00 ms.
  const next = UNITS[UNITS.indexOf(rounded) + 1];
  const unit = next !== undefined && size / rounded.ns >= 999.5 ? next : rounded;
  return `${significant(ns / unit.ns)} ${unit.name}`;
}

/**
 * Formats all known digits: picoseconds below 2^53 ps (2.5 hours), nanoseconds above. At least three decimals except
 * for whole nanoseconds: `12.831042 ms`, `45.100 µs`, `7 ns`.
 */
export function exactTime(ns: number): string {
  if (ns === 0) return '0 ns';
  const unit = unitFor(Math.abs(ns));
  const picoseconds = Math.abs(ns) * 1e3 < Number.MAX_SAFE_INTEGER;
  const whole = picoseconds ? BigInt(Math.round(ns * 1e3)) : BigInt(Math.round(ns)) * 1000n;
  const sign = whole < 0n ? '-' : '';
  const size = whole < 0n ? -whole : whole;
  const perUnit = BigInt(unit.ns) * 1000n;
  const digits = perUnit.toString().length - 1;
  const fraction = (size % perUnit).toString().padStart(digits, '0').replace(/0+$/, '');
  const least = unit.ns === 1 ? 0 : 3;
  const shown = fraction.padEnd(least, '0');
  const head = groupDigits((size / perUnit).toString());
  return `${sign}${head}${shown === '' ? '' : `.${shown}`} ${unit.name}`;
}

/** Formats a time on the axis, with just enough digits to distinguish ticks `stepNs` apart. */
export function axisTime(ns: number, stepNs: number): string {
  if (Math.abs(ns) < stepNs / 1e6) return '0';
  const unit = unitFor(Math.max(Math.abs(ns), stepNs));
  let digits = Math.max(0, Math.ceil(-Math.log10(stepNs / unit.ns) - 1e-9));
  // A quarter of a unit needs two digits: 1.25 s is not 1.3 s.
  const rest = (): number => (stepNs / unit.ns) * 10 ** digits;
  while (digits < 12 && Math.abs(rest() - Math.round(rest())) > 1e-6) digits += 1;
  return `${groupDigits((ns / unit.ns).toFixed(Math.min(12, digits)))} ${unit.name}`;
}

/** Formats a window for the toolbar: `12.40 – 13.60 ms (1.20 ms)`. Both ends have the same unit. */
export function formatRange(startNs: number, endNs: number): string {
  const length = endNs - startNs;
  const unit = unitFor(Math.max(Math.abs(startNs), Math.abs(endNs)));
  const digits = Math.max(0, Math.min(9, 2 - Math.floor(Math.log10(length / unit.ns))));
  const show = (ns: number) => groupDigits((ns / unit.ns).toFixed(digits));
  return `${show(startNs)} – ${show(endNs)} ${unit.name} (${formatDuration(length)})`;
}

const BINARY = ['KiB', 'MiB', 'GiB', 'TiB'] as const;

export function formatBytes(bytes: number): string {
  if (Math.abs(bytes) < 999.5) return `${Number.isInteger(bytes) ? bytes : bytes.toFixed(1)} B`;
  let value = bytes / 1024;
  let step = 0;
  while (Math.abs(value) >= 999.5 && step < BINARY.length - 1) {
    value /= 1024;
    step += 1;
  }
  return `${significant(value)} ${BINARY[step]}`;
}

const DECIMAL = ['', 'k', 'M', 'G', 'T', 'P'] as const;

/** Formats a counter's value with its unit; bytes with binary prefixes, other numbers with decimal ones. */
export function formatValue(value: number, unit: string | undefined): string {
  if (!Number.isFinite(value)) return String(value);
  if (unit === 'bytes' || unit === 'B' || unit === 'byte') return formatBytes(value);
  if (unit === 'ns') return formatDuration(value);
  const size = Math.abs(value);
  let scaled = value;
  let step = 0;
  while (Math.abs(scaled) >= 999_950 && step < DECIMAL.length - 1) {
    scaled /= 1000;
    step += 1;
  }
  if (step > 0 && Math.abs(scaled) >= 999.5 && step < DECIMAL.length - 1) {
    scaled /= 1000;
    step += 1;
  }
  const text = size !== 0 && size < 1e-4 ? value.toExponential(2) : significant(scaled);
  return `${text}${step === 0 ? '' : ` ${DECIMAL[step]}`}${unit === undefined || unit === '' ? '' : ` ${unit}`}`;
}

/** Formats a quantity with a decimal prefix at its unit: `1.81 TFLOP/s`. */
export function formatPrefixed(value: number, unit: string): string {
  const size = Math.abs(value);
  if (size >= 999.5 && size < 999_500) return `${significant(value / 1e3)} k${unit}`;
  if (size >= 999_500 && size < 999_950) return `${significant(value / 1e6)} M${unit}`;
  return formatValue(value, unit).replace(/ ([kMGTP]) /, ' $1');
}

/** Formats an arithmetic rate: `1.81 TFLOP/s`. */
export const formatFlopRate = (flopsPerSecond: number): string => formatPrefixed(flopsPerSecond, 'FLOP/s');

/** Formats a share between 0 and 1 as percent with three significant digits; below 0.001 % as `< 0.001 %`. */
export function formatShare(share: number): string {
  if (Math.abs(share) < 1e-5) return share > 0 ? '< 0.001 %' : '0 %';
  return `${significant(share * 100)} %`;
}

/** Formats a time of day or a date in the user's time zone. `nowMs` is a parameter so that tests can fix it. */
export function formatRecorded(unixMs: number, nowMs: number): string {
  const date = new Date(unixMs);
  const day = (ms: number) => {
    const d = new Date(ms);
    return Date.UTC(d.getFullYear(), d.getMonth(), d.getDate()) / 86_400_000;
  };
  const clock = `${pad2(date.getHours())}:${pad2(date.getMinutes())}`;
  const ago = day(nowMs) - day(unixMs);
  if (ago === 0) return `today ${clock}`;
  if (ago === 1) return `yesterday ${clock}`;
  return `${date.getFullYear()}-${pad2(date.getMonth() + 1)}-${pad2(date.getDate())} ${clock}`;
}

const pad2 = (value: number) => value.toString().padStart(2, '0');
