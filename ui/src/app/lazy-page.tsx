// lazy-page.tsx: report pages, each in a separate chunk. After the first page is drawn, the others are fetched while
// idle, so that they open without a wait.
import type { ReadonlySignal } from '@preact/signals';
import type { ComponentType, JSX } from 'preact';
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

type Page = ComponentType<LazyProps>;

const LOADERS = {
  overview: () => import('../pages/overview/page.tsx'),
  'critical-path': () => import('../pages/critical-path/page.tsx'),
  ops: () => import('../pages/ops/page.tsx'),
  calls: () => import('../pages/calls/page.tsx'),
  kernels: () => import('../pages/kernels/page.tsx'),
  memory: () => import('../pages/memory/page.tsx'),
  graph: () => import('../pages/graph/page.tsx'),
  'hlo-memory': () => import('../pages/hlo-memory/page.tsx'),
  input: () => import('../pages/input/page.tsx'),
  roofline: () => import('../pages/roofline/page.tsx'),
  ranks: () => import('../pages/ranks/page.tsx'),
  reports: () => import('../pages/reports/page.tsx'),
} satisfies Record<string, () => Promise<{ default: Page }>>;

export type LazyTool = keyof typeof LOADERS;

export const isLazyPage = (tool: string): tool is LazyTool => tool in LOADERS;

/** Returns whether the run has data for a page; other pages show the reason. */
export const isFillable = (run: RunDetail, tool: string): boolean =>
  run.tools.find((item) => item.id === tool)?.state !== 'unavailable';

const loaded = new Map<LazyTool, Page>();

async function load(tool: LazyTool): Promise<Page> {
  const page = (await LOADERS[tool]()).default;
  loaded.set(tool, page);
  return page;
}

let warmed = false;

/** Fetches the pages that are not loaded yet, one after the other. */
function warm(): void {
  if (warmed) return;
  warmed = true;
  const later = (action: () => void) =>
    'requestIdleCallback' in window ? requestIdleCallback(action, { timeout: 5000 }) : setTimeout(action, 1000);
  const next = (tools: readonly LazyTool[]) => {
    const [tool, ...rest] = tools;
    if (tool === undefined) return;
    later(
      () =>
        void load(tool).then(
          () => next(rest),
          () => undefined,
        ),
    );
  };
  next((Object.keys(LOADERS) as LazyTool[]).filter((tool) => !loaded.has(tool)));
}

export function LazyPage({ tool, ...page }: LazyProps & { readonly tool: LazyTool }): JSX.Element {
  const [, setLoads] = useState(0);
  const [problem, setProblem] = useState<unknown>(undefined);
  const Found = loaded.get(tool);
  useEffect(() => {
    if (loaded.has(tool)) {
      warm();
      return;
    }
    let gone = false;
    load(tool).then(
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
  }, [tool]);
  if (Found !== undefined) return <Found {...page} />;
  const known = toolOf(tool);
  return (
    <>
      <PageHead title={known?.title ?? tool} summary={known?.question ?? ''} />
      {problem === undefined ? (
        <Loading what="Loading the page" />
      ) : (
        <ProblemState problem={toProblem(problem)}>
          <button type="button" class="ss-button" onClick={() => location.reload()}>
            Load again
          </button>
        </ProblemState>
      )}
    </>
  );
}
