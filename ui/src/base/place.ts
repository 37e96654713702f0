// place.ts: the base path of the viewer. A proxy such as TensorBoard may serve it below any path; the page derives the
// path from the address of its own files. Addresses inside of the viewer (`/run/…`, `/api/v1/…`) are relative to it.

/** Returns the path before `assets/` in the address of one of our files; empty at the root and in development. */
export function placeOf(file: string): string {
  const path = new URL(file).pathname;
  const at = path.lastIndexOf('/assets/');
  return at < 0 ? '' : path.slice(0, at);
}

/** Base path of the viewer, without a trailing slash. */
export const PLACE = placeOf(import.meta.url);

/** Converts an address of the viewer to a path for the browser. */
export const below = (address: string): string => PLACE + address;

/** Converts a path of the browser to an address of the viewer. */
export const within = (path: string, place: string = PLACE): string =>
  place !== '' && path.startsWith(`${place}/`) ? path.slice(place.length) : path;
