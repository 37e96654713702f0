// sentence.ts: a sentence of a report in parts: text, values with units, lines of code, and their links. Pure.
import { asArray, asNumber, asObject, asText, type Json } from '../base/json.ts';

/** The target of a part of a sentence. */
export type SentenceLink =
  | { readonly kind: 'event'; readonly id: number }
  | { readonly kind: 'range'; readonly startNs: number; readonly endNs: number; readonly host: string | undefined }
  | { readonly kind: 'step'; readonly step: number }
  | { readonly kind: 'rank'; readonly rank: number }
  /** The first row of the main table that has this text in this column. */
  | { readonly kind: 'row'; readonly column: string; readonly name: string }
  | { readonly kind: 'scalar'; readonly key: string }
  | { readonly kind: 'section'; readonly name: string }
  | { readonly kind: 'page'; readonly id: string };

export interface SentencePart {
  readonly text: string;
  /** The number in the text, before rounding. */
  readonly value?: number | undefined;
  readonly unit?: string | undefined;
  /** For a value, its evidence; for text, the subject of the sentence. */
  readonly link?: SentenceLink | undefined;
  /** The text is a line of code for the user's program. */
  readonly isCode?: boolean | undefined;
}

export interface Sentence {
  readonly parts: readonly SentencePart[];
}

function linkOf(value: Json): SentenceLink | undefined {
  const fields = asObject(value);
  if (fields === undefined) return undefined;
  const id = asNumber(fields['event']);
  if (id !== undefined) return { kind: 'event', id };
  const step = asNumber(fields['step']);
  if (step !== undefined) return { kind: 'step', step };
  const rank = asNumber(fields['rank']);
  if (rank !== undefined) return { kind: 'rank', rank };
  const range = asObject(fields['range']);
  const [startNs, endNs] = [asNumber(range?.['start_ns']), asNumber(range?.['end_ns'])];
  if (startNs !== undefined && endNs !== undefined)
    return { kind: 'range', startNs, endNs, host: asText(range?.['host']) };
  const [row] = Object.entries(asObject(fields['row']) ?? {});
  const name = asText(row?.[1]);
  if (row !== undefined && name !== undefined) return { kind: 'row', column: row[0], name };
  const key = asText(fields['scalar']);
  if (key !== undefined) return { kind: 'scalar', key };
  const section = asText(fields['section']);
  if (section !== undefined) return { kind: 'section', name: section };
  const page = asText(fields['page']);
  return page === undefined ? undefined : { kind: 'page', id: page };
}

/** Parses a sentence; parts of the wrong shape are omitted. */
export const sentenceOf = (body: Json): Sentence => ({
  parts: asArray(body).flatMap((item): readonly SentencePart[] => {
    const fields = asObject(item);
    const text = asText(fields?.['text']);
    if (fields === undefined || text === undefined) return [];
    const link = linkOf(fields['link']);
    return [
      {
        text,
        ...(fields['unit'] === undefined ? {} : { value: asNumber(fields['value']), unit: asText(fields['unit']) }),
        ...(link === undefined ? {} : { link }),
        ...(fields['code'] === true ? { isCode: true } : {}),
      },
    ];
  }),
});

/** Creates a sentence without values. */
export const textSentence = (text: string): Sentence => ({ parts: text === '' ? [] : [{ text }] });

export const plainText = ({ parts }: Sentence): string => parts.map(({ text }) => text).join('');

/** Returns the line of code in a sentence, and the text before it. */
export function codeIn({ parts }: Sentence): { readonly before: string; readonly code: string } | undefined {
  const at = parts.findIndex(({ isCode }) => isCode === true);
  const code = parts[at]?.text;
  return code === undefined ? undefined : { before: plainText({ parts: parts.slice(0, at) }), code };
}

/** Returns whether the text of a sentence links to a figure or a table as its subject. */
export const isAbout = ({ parts }: Sentence, matches: (link: SentenceLink) => boolean): boolean =>
  parts.some(({ value, link }) => value === undefined && link !== undefined && matches(link));
