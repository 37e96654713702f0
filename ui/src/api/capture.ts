// capture.ts: captures of running programs.
import { asArray, asFlag, asNumber, asObject, asText, type Json } from '../base/json.ts';
import type { Capture, CaptureHost, CapturePhase, CaptureRequest } from '../model/capture.ts';
import { serverPath } from './address.ts';
import { getJson, sendJson } from './client.ts';

const PHASES: readonly CapturePhase[] = [
  'connecting',
  'waiting',
  'recording',
  'collecting',
  'done',
  'empty',
  'failed',
  'cancelled',
];

function hostOf(value: Json): CaptureHost | undefined {
  const fields = asObject(value);
  const address = asText(fields?.['address']);
  if (fields === undefined || address === undefined) return undefined;
  return {
    address,
    state: asText(fields['state']) ?? '',
    stage: asText(fields['stage']),
    message: asText(fields['message']),
    bytes: asNumber(fields['bytes']) ?? 0,
    events: asNumber(fields['events']) ?? 0,
  };
}

/** Parses a capture; `undefined` if the value is not one. */
export function captureOf(value: Json): Capture | undefined {
  const fields = asObject(value);
  const id = asText(fields?.['id']);
  const phase = PHASES.find((known) => known === fields?.['phase']);
  if (fields === undefined || id === undefined || phase === undefined) return undefined;
  return {
    id,
    seq: asNumber(fields['seq']) ?? 0,
    phase,
    stopping: asFlag(fields['stopping']),
    attempt: asNumber(fields['attempt']) ?? 1,
    elapsedMs: asNumber(fields['elapsed_ms']) ?? 0,
    totalMs: asNumber(fields['total_ms']) ?? 0,
    hosts: asArray(fields['hosts']).flatMap((host) => hostOf(host) ?? []),
    run: asText(fields['run']),
    message: asText(fields['message']),
  };
}

/** Starts a capture and returns its id. */
export async function startCapture(request: CaptureRequest): Promise<string> {
  const { durationMs, hostLevel, delayMs, ...rest } = request;
  const body = { ...rest, duration_ms: durationMs, host_level: hostLevel, delay_ms: delayMs };
  return asText(asObject(await sendJson('POST', serverPath('/capture'), body))?.['id']) ?? '';
}

export const fetchCapture = async (id: string): Promise<Capture | undefined> =>
  captureOf((await getJson(serverPath(`/capture/${encodeURIComponent(id)}`))).body);

/** Ends the recording early and keeps the data; a second call discards the capture. */
export const stopCapture = async (id: string): Promise<Capture | undefined> =>
  captureOf(await sendJson('DELETE', serverPath(`/capture/${encodeURIComponent(id)}`), undefined));
