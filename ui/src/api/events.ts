// events.ts: events of an area in pages, and names of events with their counts.
import { asArray, asNumber, asObject, asText } from '../base/json.ts';
import type { EventRef } from '../model/event.ts';
import { idText, runPath } from './address.ts';
import { getJson, type RequestOptions } from './client.ts';
import { refOf, type SearchQuery } from './server.ts';

export interface EventsQuery {
  readonly v: string;
  readonly range: { readonly startNs: number; readonly endNs: number };
  /** Track ids; `undefined`: all tracks. */
  readonly tracks: readonly number[] | undefined;
  readonly order: 'start' | 'longest' | 'shortest';
  readonly offset: number;
  readonly limit: number;
  readonly q: string;
  readonly mode: SearchQuery['mode'];
}

/** One page of the events of an area. */
export interface EventsPage {
  readonly total: number;
  readonly first: number;
  readonly events: readonly EventRef[];
}

export async function fetchEvents(run: string, ask: EventsQuery, options?: RequestOptions): Promise<EventsPage> {
  const fields = {
    t0: ask.range.startNs,
    t1: ask.range.endNs,
    tracks: ask.tracks === undefined ? undefined : idText(ask.tracks),
    order: ask.order,
    offset: ask.offset,
    limit: ask.limit,
    q: ask.q === '' ? undefined : ask.q,
    mode: ask.mode === 'text' ? undefined : ask.mode,
    v: ask.v,
  };
  const body = asObject((await getJson(runPath(run, '/events', fields), options)).body);
  return {
    total: asNumber(body?.['total']) ?? 0,
    first: asNumber(body?.['first']) ?? 0,
    events: asArray(body?.['events']).flatMap((item) => refOf(item) ?? []),
  };
}

/** A name of events with its count. */
export interface NameCount {
  readonly name: string;
  readonly label: string;
  readonly count: number;
  readonly first: number;
}

export interface NamesAnswer {
  readonly total: number;
  readonly names: number;
  readonly rows: readonly NameCount[];
}

export async function fetchNames(
  run: string,
  ask: { readonly q: string; readonly mode: SearchQuery['mode']; readonly v: string; readonly limit: number },
  options?: RequestOptions,
): Promise<NamesAnswer> {
  const fields = { q: ask.q, mode: ask.mode === 'text' ? undefined : ask.mode, limit: ask.limit, v: ask.v };
  const body = asObject((await getJson(runPath(run, '/names', fields), options)).body);
  return {
    total: asNumber(body?.['total']) ?? 0,
    names: asNumber(body?.['names']) ?? 0,
    rows: asArray(body?.['rows']).flatMap((item) => {
      const row = asObject(item);
      const name = asText(row?.['name']);
      if (row === undefined || name === undefined) return [];
      const label = asText(row['short_name']) ?? name;
      return [{ name, label, count: asNumber(row['count']) ?? 0, first: asNumber(row['first']) ?? -1 }];
    }),
  };
}
