// page.tsx: questions to runs in SQL.
import type { ReadonlySignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { type Problem, toProblem } from '../../api/client.ts';
import { createResource } from '../../api/resource.ts';
import { fetchSqlSchema, runSql, sqlKey, type TimedAnswer } from '../../api/sql.ts';
import type { Theme } from '../../base/theme.ts';
import { shortRunNames } from '../../model/run-list.ts';
import { errorOffset, questionsOf, type SqlSchema } from '../../model/sql.ts';
import { runList } from '../../state/lists.ts';
import { goTo, type Store } from '../../state/store.ts';
import { Combobox } from '../../widgets/combobox.tsx';
import { EmptyState, Loading, ProblemState } from '../../widgets/states.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { Editor } from './editor.tsx';
import questionsText from './questions.sql?raw';
import { Result } from './result.tsx';
import { SchemaList } from './schema.tsx';
import './sql.css';

const QUESTION = 'What else do you want to know?';
const QUESTIONS = questionsOf(questionsText);
const DEFAULT_ROWS = 10_000;
const ROW_LIMITS = [1_000, 10_000, 100_000];

/** Returns tables and functions, or why there are none. */
function useSchema(): readonly [SqlSchema | undefined, Problem | undefined, () => void] {
  const [schema, setSchema] = useState<SqlSchema | undefined>(undefined);
  const [problem, setProblem] = useState<Problem | undefined>(undefined);
  const [tries, setTries] = useState(0);
  useEffect(() => {
    let gone = false;
    setProblem(undefined);
    fetchSqlSchema().then(
      (found) => {
        if (!gone) setSchema(found);
      },
      (error: unknown) => {
        if (!gone) setProblem(toProblem(error));
      },
    );
    return () => {
      gone = true;
    };
  }, [tries]);
  return [schema, problem, () => setTries((count) => count + 1)];
}

export default function SqlPage({
  store,
  theme,
}: {
  readonly store: Store;
  readonly theme: ReadonlySignal<Theme>;
}): JSX.Element {
  const place = store.place.value;
  const runs = place.kind === 'sql' ? place.runs : [];
  const { view } = store;
  const asked = view.sql.value;
  const rows = view.top.value ?? DEFAULT_ROWS;
  const [draft, setDraft] = useState(asked);
  // "Back" shows the query of the address.
  useEffect(() => setDraft(asked), [asked]);
  const [schema, missing, again] = useSchema();
  const known = runList.value.runs;
  const content = runs
    .map((id) => known.find((run) => run.id === id))
    .map((run) => `${run?.bytes}/${run?.recordedUnixMs}`)
    .join();

  const answers = useMemo(() => createResource<TimedAnswer>(), []);
  const query = { runs, sql: asked, rows };
  const key = sqlKey(query, content);
  const isAsked = asked.trim() !== '' && runs.length > 0 && runList.value.loaded;
  useEffect(() => {
    if (isAsked) answers.load(key, (signal) => runSql(query, content, false, { signal }));
    else answers.clear();
  }, [answers, isAsked, key]);
  useEffect(() => () => answers.clear(), [answers]);
  const state = answers.state.value;
  const problem = state.key === key ? state.problem : undefined;
  const isLoading = isAsked && (state.loading || state.key !== key);

  const run = (sql: string) => {
    if (sql.trim() === '' || runs.length === 0) return;
    if (sql === asked && state.key === key) {
      // The same query again: the server is asked anew.
      answers.clear();
      answers.load(key, (signal) => runSql(query, content, true, { signal }));
      return;
    }
    view.sort.value = undefined;
    view.chartX.value = undefined;
    view.chartY.value = undefined;
    view.sql.value = sql;
  };
  const names = shortRunNames(known);
  const chooseRun = (id: string) => {
    const next = runs.includes(id) ? runs.filter((other) => other !== id) : [...runs, id];
    goTo(store, { kind: 'sql', runs: next });
  };

  if (missing !== undefined) {
    return (
      <>
        <PageHead title="SQL" summary={QUESTION} />
        <div class="ss-page">
          {missing.code === 'no-sql-engine' ? (
            <EmptyState
              reason="unsupported"
              title={missing.title}
              why={[missing.detail, missing.hint].filter(Boolean).join(': ')}
            >
              <button type="button" class="ss-button" onClick={again}>
                Look again
              </button>
            </EmptyState>
          ) : (
            <ProblemState problem={missing}>
              <button type="button" class="ss-button" onClick={again}>
                Try again
              </button>
            </ProblemState>
          )}
        </div>
      </>
    );
  }
  return (
    <>
      <PageHead title="SQL" summary={QUESTION} />
      <div class="ss-page ss-page-full ss-sql">
        <SchemaList schema={schema} />
        <div class="ss-sql-main">
          <div class="ss-page-bar">
            <Combobox
              label="Runs"
              multiple
              class="ss-sql-runs"
              text={runs.length === 1 ? (names.get(runs[0] ?? '') ?? runs[0] ?? '') : `${runs.length} runs`}
              placeholder="Choose runs"
              options={known.map((item) => ({
                id: item.id,
                label: names.get(item.id) ?? item.name,
                badges: item.kinds.slice(0, 3),
                selected: runs.includes(item.id),
                muted: item.state === 'error',
                search: item.name,
              }))}
              onChoose={chooseRun}
            />
            <label class="ss-field">
              Examples
              <select
                value=""
                onChange={(event) => {
                  const question = QUESTIONS[Number(event.currentTarget.value)];
                  event.currentTarget.value = '';
                  if (question === undefined) return;
                  setDraft(question.sql);
                  run(question.sql);
                }}
              >
                <option value="" disabled hidden>
                  Choose a question
                </option>
                {QUESTIONS.map(({ title }, at) => (
                  <option key={title} value={at}>
                    {title}
                  </option>
                ))}
              </select>
            </label>
            <label class="ss-field">
              Rows
              <select
                value={rows}
                onChange={(event) => {
                  const most = Number(event.currentTarget.value);
                  view.top.value = most === DEFAULT_ROWS ? undefined : most;
                }}
              >
                {[...new Set([...ROW_LIMITS, rows])].map((most) => (
                  <option key={most} value={most}>
                    {most}
                  </option>
                ))}
              </select>
            </label>
          </div>
          <Editor
            text={draft}
            schema={schema}
            errorAt={problem === undefined || draft !== asked ? undefined : errorOffset(asked, problem.detail)}
            onText={setDraft}
            onRun={() => run(draft)}
          />
          <div class="ss-page-bar">
            <button
              type="button"
              class="ss-button ss-primary"
              title="Ctrl or Cmd with Enter"
              disabled={draft.trim() === '' || runs.length === 0}
              onClick={() => run(draft)}
            >
              Run query
            </button>
            {isLoading ? (
              <button type="button" class="ss-button" onClick={() => answers.cancel()}>
                Cancel
              </button>
            ) : undefined}
            <span class="ss-quiet">Queries only read. A query ends after 60 s.</span>
          </div>
          <div class={isLoading ? 'ss-answer ss-dim' : 'ss-answer'} aria-busy={isLoading}>
            {isLoading ? <Loading what="Running the query" /> : undefined}
            {runs.length === 0 ? (
              <EmptyState reason="no-match" title="Choose a run" why="A query reads one or more runs." />
            ) : problem !== undefined ? (
              <ProblemState problem={problem} />
            ) : state.value !== undefined && isAsked ? (
              <Result store={store} theme={theme} runs={runs} timed={state.value} />
            ) : undefined}
          </div>
        </div>
      </div>
    </>
  );
}
