// address.ts: addresses of endpoints. An endpoint that the server does not have is a type error.
import type { ENDPOINTS } from '../model/generated.ts';

type Endpoint = (typeof ENDPOINTS)[number][1];

/** A path whose variable parts are any text. */
type Filled<Path extends string> = Path extends `${infer Head}{${string}}${infer Tail}`
  ? `${Head}${string}${Filled<Tail>}`
  : Path;

/** Paths after `/runs/{run}`. */
type RunPathOf<Path extends string> = Path extends `/runs/{run}${infer Rest}` ? Filled<Rest> : never;
type RunPath = RunPathOf<Endpoint>;
type ServerPathOf<Path extends string> = Path extends `/runs/{run}${string}` ? never : Filled<Path>;
type ServerPath = ServerPathOf<Endpoint>;

/** A list is a repeated parameter. */
type Fields = Readonly<Record<string, string | number | readonly string[] | undefined>>;

function query(fields: Fields): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === 'object') for (const item of value) params.append(name, item);
    else if (value !== undefined) params.set(name, typeof value === 'number' ? timeText(value) : value);
  }
  const text = params.toString();
  return text === '' ? '' : `?${text}`;
}

/** Returns the address of an endpoint of the server. */
export const serverPath = (path: ServerPath, fields: Fields = {}): string => `${path}${query(fields)}`;

/** Returns the address of an endpoint of a run. */
export const runPath = (run: string, rest: RunPath, fields: Fields = {}): string =>
  `/runs/${encodeURIComponent(run)}${rest}${query(fields)}`;

/** Formats nanoseconds with up to three decimals, without an exponent. */
export function timeText(ns: number): string {
  if (Number.isInteger(ns) && Math.abs(ns) < 1e21) return ns.toFixed(0);
  return ns.toFixed(3).replace(/0+$/, '').replace(/\.$/, '');
}

export const idText = (ids: readonly number[]): string | undefined => (ids.length === 0 ? undefined : ids.join(','));
