// sql.ts: asks the SQL engine. Answers are cached, so that "Back" from the timeline runs no query again.
import { Lru } from '../base/lru.ts';
import { type SqlAnswer, type SqlSchema, sqlAnswerOf, sqlSchemaOf } from '../model/sql.ts';
import { getJson, type RequestOptions, sendJson } from './client.ts';

export interface SqlQuery {
  readonly runs: readonly string[];
  readonly sql: string;
  /** Maximum number of rows. */
  readonly rows: number;
}

/** An answer and the time that it took, the way to the server included. */
export interface TimedAnswer {
  readonly answer: SqlAnswer;
  readonly tookMs: number;
}

const KEPT_BYTES = 32 * 2 ** 20;
/** Rough size of a value in memory. */
const VALUE_BYTES = 32;
const kept = new Lru<TimedAnswer>(KEPT_BYTES);

/** Returns the cache key of a query. `content`: changes when a run does. */
export const sqlKey = (query: SqlQuery, content: string): string => JSON.stringify([query, content]);

/** Runs a query, or returns its cached answer unless `fresh`. */
export async function runSql(
  query: SqlQuery,
  content: string,
  fresh: boolean,
  options: RequestOptions = {},
): Promise<TimedAnswer> {
  const key = sqlKey(query, content);
  const before = fresh ? undefined : kept.get(key);
  if (before !== undefined) return before;
  const began = performance.now();
  const { runs, sql, rows } = query;
  const answer = sqlAnswerOf(await sendJson('POST', '/sql', { runs, sql, rows }, options));
  const timed = { answer, tookMs: performance.now() - began };
  kept.set(key, timed, answer.rows.length * answer.columns.length * VALUE_BYTES + 1000);
  return timed;
}

let schema: Promise<SqlSchema> | undefined;

/** Fetches tables and functions once; again after a failure. */
export function fetchSqlSchema(): Promise<SqlSchema> {
  schema ??= getJson('/sql/schema').then(
    ({ body }) => sqlSchemaOf(body),
    (error: unknown) => {
      schema = undefined;
      throw error;
    },
  );
  return schema;
}
