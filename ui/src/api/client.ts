// client.ts: requests and their failures. Relative addresses only, so that links work through a tunnel.
import { signal } from '@preact/signals';
import { asNumber, asObject, asText, type Json } from '../base/json.ts';
import { below } from '../base/place.ts';
import { type Columns, decodeColumns } from './columns.ts';
import { Gate, isAbort, type Urgency } from './gate.ts';

/** The cause of a failed request, for the user. */
export class Problem extends Error {
  override readonly name = 'Problem';

  constructor(
    readonly title: string,
    readonly detail: string,
    readonly hint: string | undefined,
    readonly where: string | undefined,
    /** HTTP status; 0 without a response. */
    readonly status: number,
    readonly code: string,
  ) {
    super(detail === '' ? title : `${title}: ${detail}`);
  }

  /** Text for "Copy details". */
  get report(): string {
    return [this.title, this.detail, this.where, this.hint, `${this.status} ${this.code}`].filter(Boolean).join('\n');
  }
}

export const toProblem = (error: unknown): Problem =>
  error instanceof Problem
    ? error
    : new Problem(
        'The answer could not be read',
        error instanceof Error ? error.message : String(error),
        'If this stays, please report it with these details.',
        undefined,
        0,
        'client',
      );

export type Connection = 'connected' | 'lost';

/** Whether the server answered the latest request. */
export const connection = signal<Connection>('connected');

const gate = new Gate(3);
const BASE = below('/api/v1');

export interface RequestOptions {
  readonly urgency?: Urgency;
  readonly signal?: AbortSignal | undefined;
}

async function problemOf(response: Response): Promise<Problem> {
  let body: Json;
  try {
    body = await response.json();
  } catch {
    body = undefined;
  }
  const fields = asObject(body);
  return new Problem(
    asText(fields?.['title']) ?? `The server answered ${response.status}`,
    asText(fields?.['detail']) ?? response.statusText,
    asText(fields?.['hint']),
    asText(fields?.['where']),
    response.status,
    asText(fields?.['type'])?.replace('urn:stepscope:', '') ?? 'http',
  );
}

async function request(path: string, init: RequestInit, options: RequestOptions): Promise<Response> {
  const response = await gate.run(options.urgency ?? 'now', options.signal, async () => {
    try {
      const answer = await fetch(
        `${BASE}${path}`,
        options.signal === undefined ? init : { ...init, signal: options.signal },
      );
      // Reads the body within the gate: a request counts as in flight until its body has arrived.
      const body = await answer.arrayBuffer();
      connection.value = 'connected';
      return new Response(answer.status === 204 || answer.status === 304 ? undefined : body, {
        status: answer.status,
        statusText: answer.statusText,
        headers: answer.headers,
      });
    } catch (error) {
      if (isAbort(error)) throw error;
      connection.value = 'lost';
      throw new Problem(
        'The server does not answer',
        'The connection is lost.',
        'Is stepscope still running?',
        undefined,
        0,
        'offline',
      );
    }
  });
  if (!response.ok) throw await problemOf(response);
  return response;
}

export interface JsonAnswer {
  readonly status: number;
  readonly body: Json;
}

export async function getJson(path: string, options: RequestOptions = {}): Promise<JsonAnswer> {
  const response = await request(path, { headers: { accept: 'application/json' } }, options);
  return { status: response.status, body: await response.json() };
}

export const getText = async (path: string, options: RequestOptions = {}): Promise<string> =>
  (await request(path, {}, options)).text();

export async function getColumns(path: string, options: RequestOptions = {}): Promise<Columns> {
  const response = await request(path, {}, options);
  return decodeColumns(await response.arrayBuffer());
}

/**
 * Token that proves that a write comes from our own page. The server writes it into the page; `GET /server` returns it,
 * too.
 */
let writeToken = document.querySelector('meta[name="stepscope-token"]')?.getAttribute('content') ?? '';

export function setWriteToken(token: string): void {
  writeToken = token;
}

export async function sendJson(
  method: 'POST' | 'PUT' | 'DELETE',
  path: string,
  body: Json,
  options: RequestOptions = {},
): Promise<Json> {
  const headers = { 'content-type': 'application/json', accept: 'application/json', 'x-stepscope-token': writeToken };
  const response = await request(
    path,
    body === undefined ? { method, headers } : { method, headers, body: JSON.stringify(body) },
    options,
  );
  return response.json();
}

export async function sendFile(path: string, file: Blob): Promise<Json> {
  const headers = { 'content-type': 'application/octet-stream', 'x-stepscope-token': writeToken };
  const response = await request(path, { method: 'POST', headers, body: file }, {});
  return response.json();
}

/** Checks whether the server answers; never throws. */
export async function ping(): Promise<boolean> {
  try {
    const answer = await getJson('/server');
    const token = asText(asObject(answer.body)?.['token']);
    if (token !== undefined) setWriteToken(token);
    return asNumber(answer.status) === 200;
  } catch {
    return false;
  }
}
