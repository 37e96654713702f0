// place.ts: where the viewer is served. A proxy may serve it below any path, `TensorBoard` does; the page finds out
// from the place of its own files. Addresses inside of the viewer (`/run/…`, `/api/v1/…`) begin there.

/** The path before `assets/` in the address of one of our files; empty at the root and in development. */
export function placeOf(file: string): string {
  const path = new URL(file).pathname;
  const at = path.lastIndexOf('/assets/');
  return at < 0 ? '' : path.slice(0, at);
}

/** Where the viewer is served, without a slash at the end. */
export const PLACE = placeOf(import.meta.url);

/** An address of the viewer as the browser needs it. */
export const below = (address: string): string => PLACE + address;

/** The path of the browser as an address of the viewer. */
export const within = (path: string, place: string = PLACE): string =>
  place !== '' && path.startsWith(`${place}/`) ? path.slice(place.length) : path;
