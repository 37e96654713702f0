// json.ts: typed access to untrusted JSON. A value of the wrong shape becomes `undefined`, never a crash.

export type Json = unknown;

export type JsonObject = Readonly<Record<string, unknown>>;

export const asObject = (value: Json): JsonObject | undefined =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : undefined;

export const asArray = (value: Json): readonly unknown[] => (Array.isArray(value) ? value : []);

export const asText = (value: Json): string | undefined => (typeof value === 'string' ? value : undefined);

/** Returns a number, also from text: numbers beyond 2^53 are serialized as text. */
export function asNumber(value: Json): number | undefined {
  if (typeof value === 'number') return Number.isFinite(value) ? value : undefined;
  if (typeof value !== 'string' || value.trim() === '') return undefined;
  const parsed = Number(value);
  return Number.isFinite(parsed) ? parsed : undefined;
}

export const asFlag = (value: Json): boolean => value === true;

export const asTexts = (value: Json): readonly string[] =>
  asArray(value).flatMap((item) =>
    typeof item === 'string' ? [item] : typeof item === 'number' ? [String(item)] : [],
  );
