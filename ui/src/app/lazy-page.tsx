// lazy-page.tsx: report pages, each in a separate chunk. After the first page is drawn, the others are fetched while
// idle, so that they open without a wait.
import type { ReadonlySignal } from '@preact/signals';
import type { FunctionComponent, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { toProblem } from '../api/client.ts';
import type { Theme } from '../base/theme.ts';
import type { RunDetail } from '../model/run.ts';
import { toolOf } from '../model/tools.ts';
import { PageHead } from '../pages/shared/page-head.tsx';
import type { Store } from '../state/store.ts';
import { Loading, ProblemState } from '../widgets/states.tsx';

export interface LazyProps {
  readonly store: Store;
  readonly run: RunDetail;
  readonly theme: ReadonlySignal<Theme>;
}

/** A page in a chunk of its own. */
interface Chunk<P> {
  /** `undefined` until it is loaded. */
  readonly page: () => FunctionComponent<P> | undefined;
  readonly load: () => Promise<void>;
}

function chunk<P>(load: () => Promise<{ default: FunctionComponent<P> }>): Chunk<P> {
  let page: FunctionComponent<P> | undefined;
  return {
    page: () => page,
    load: async () => {
      page = (await load()).default;
    },
  };
}

const RUN_PAGES = {
  overview: chunk(() => import('../pages/overview/page.tsx')),
  'critical-path': chunk(() => import('../pages/critical-path/page.tsx')),
  ops: chunk(() => import('../pages/ops/page.tsx')),
  calls: chunk(() => import('../pages/calls/page.tsx')),
  kernels: chunk(() => import('../pages/kernels/page.tsx')),
  memory: chunk(() => import('../pages/memory/page.tsx')),
  graph: chunk(() => import('../pages/graph/page.tsx')),
  'hlo-memory': chunk(() => import('../pages/hlo-memory/page.tsx')),
  input: chunk(() => import('../pages/input/page.tsx')),
  roofline: chunk(() => import('../pages/roofline/page.tsx')),
  ranks: chunk(() => import('../pages/ranks/page.tsx')),
  reports: chunk(() => import('../pages/reports/page.tsx')),
} satisfies Record<string, Chunk<LazyProps>>;

const COMPARE = chunk(() => import('../pages/compare/page.tsx'));
const SQL = chunk(() => import('../pages/sql/page.tsx'));

type Loadable = Pick<Chunk<LazyProps>, 'load'> & { readonly page: () => unknown };

const CHUNKS: readonly Loadable[] = [...Object.values(RUN_PAGES), COMPARE, SQL];

export type LazyTool = keyof typeof RUN_PAGES;

export const isLazyPage = (tool: string): tool is LazyTool => tool in RUN_PAGES;

/** Returns whether the run has data for a page; other pages show the reason. */
export const isFillable = (run: RunDetail, tool: string): boolean =>
  run.tools.find((item) => item.id === tool)?.state !== 'unavailable';

let warmed = false;

/** Fetches the pages that are not loaded yet, one after the other. */
function warm(): void {
  if (warmed) return;
  warmed = true;
  const later = (action: () => void) =>
    'requestIdleCallback' in window ? requestIdleCallback(action, { timeout: 5000 }) : setTimeout(action, 1000);
  const next = (chunks: readonly Loadable[]) => {
    const [first, ...rest] = chunks;
    if (first === undefined) return;
    later(
      () =>
        void first.load().then(
          () => next(rest),
          () => undefined,
        ),
    );
  };
  next(CHUNKS.filter((item) => item.page() === undefined));
}

/** Loads a chunk; returns the problem if that fails. */
function useChunk(wanted: Loadable): unknown {
  const [, setLoads] = useState(0);
  const [problem, setProblem] = useState<unknown>(undefined);
  useEffect(() => {
    if (wanted.page() !== undefined) {
      warm();
      return;
    }
    let gone = false;
    wanted.load().then(
      () => {
        if (gone) return;
        setLoads((count) => count + 1);
        warm();
      },
      (error: unknown) => {
        if (!gone) setProblem(error);
      },
    );
    return () => {
      gone = true;
    };
  }, [wanted]);
  return problem;
}

function Waiting(props: { readonly title: string; readonly question: string; readonly problem: unknown }): JSX.Element {
  return (
    <>
      <PageHead title={props.title} summary={props.question} />
      {props.problem === undefined ? (
        <Loading what="Loading the page" />
      ) : (
        <ProblemState problem={toProblem(props.problem)}>
          <button type="button" class="ss-button" onClick={() => location.reload()}>
            Load again
          </button>
        </ProblemState>
      )}
    </>
  );
}

export function LazyPage({ tool, ...page }: LazyProps & { readonly tool: LazyTool }): JSX.Element {
  const wanted: Chunk<LazyProps> = RUN_PAGES[tool];
  const problem = useChunk(wanted);
  const Found = wanted.page();
  if (Found !== undefined) return <Found {...page} />;
  const known = toolOf(tool);
  return <Waiting title={known?.title ?? tool} question={known?.question ?? ''} problem={problem} />;
}

/** The page of two runs. */
export function LazyComparePage(page: Omit<LazyProps, 'run'>): JSX.Element {
  const problem = useChunk(COMPARE);
  const Found = COMPARE.page();
  if (Found !== undefined) return <Found {...page} />;
  return <Waiting title="Compare" question="Is the new run slower, and because of what?" problem={problem} />;
}

/** The page of queries. */
export function LazySqlPage(page: Omit<LazyProps, 'run'>): JSX.Element {
  const problem = useChunk(SQL);
  const Found = SQL.page();
  if (Found !== undefined) return <Found {...page} />;
  return <Waiting title="SQL" question="What else do you want to know?" problem={problem} />;
}
