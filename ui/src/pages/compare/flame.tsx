// flame.tsx: the attribution as a flame graph, coloured by what each node gained or lost.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { formatDuration } from '../../base/format.ts';
import { cssOf, mix, rgbOf, type Theme } from '../../base/theme.ts';
import { changeShare, differenceTree } from '../../model/compare-tree.ts';
import { parseFilter } from '../../model/filter.ts';
import { FlameChart } from '../../widgets/flame-chart.tsx';
import { EmptyState, Loading, ProblemState } from '../../widgets/states.tsx';
import { useComparison } from './answer.ts';
import { signedShare, signedTime } from './head.tsx';
import type { Compared } from './props.ts';

/** Below a change by half, colours are stretched: a change of a tenth must be visible. */
const strengthOf = (share: number): number => Math.min(1, Math.sqrt(Math.abs(share) * 2));

export function Flame({ store, theme, comparison, ask, content }: Compared): JSX.Element {
  const { view } = store;
  const answer = useComparison({ ...ask, by: 'tree' }, content);
  const rows = answer.value?.rows;
  const found = useMemo(() => (rows === undefined ? undefined : differenceTree(rows)), [rows]);
  const { matches } = useMemo(() => parseFilter(view.filter.value), [view.filter.value]);
  if (answer.problem !== undefined) return <ProblemState problem={answer.problem} />;
  if (found === undefined || answer.loading) return <Loading what="Comparing the trees" />;
  const { tree, baseNs, otherNs, paths } = found;
  if (tree.rows === 0) {
    return (
      <EmptyState
        reason="not-recorded"
        title="Nothing to draw"
        why="Neither run has time that belongs to an operation."
      />
    );
  }
  const changeOf = (row: number): number => changeShare(baseNs[row] ?? 0, otherNs[row] ?? 0);
  const colourOf = (row: number, colours: Theme): string => {
    const share = changeOf(row);
    const plain = rgbOf(colours.kinds[0] ?? colours.line);
    return cssOf(mix(plain, rgbOf(share < 0 ? colours.less : colours.more), strengthOf(share)));
  };
  const tipOf = (row: number): string => {
    const [from, to] = [baseNs[row] ?? 0, otherNs[row] ?? 0];
    const change = from === 0 ? 'added' : to === 0 ? 'removed' : signedShare(to / from - 1);
    return `${formatDuration(from)} → ${formatDuration(to)} per step: ${signedTime(to - from)} (${change})`;
  };
  const at = view.focus.value === undefined ? -1 : paths.indexOf(view.focus.value);
  return (
    <div class="ss-compare-tab">
      <div class="ss-page-bar">
        <input
          type="text"
          class="ss-filter"
          aria-label="Find in the flame graph"
          placeholder="Find"
          value={view.filter.value}
          onInput={(event) => {
            view.filter.value = event.currentTarget.value;
          }}
        />
        <ul class="ss-key" aria-label="Legend">
          <li>
            <i class="ss-fall-less" /> less time
          </li>
          <li>
            <i class="ss-fall-same" /> unchanged
          </li>
          <li>
            <i class="ss-fall-more" /> more time
          </li>
        </ul>
        <span class="ss-quiet">
          Bucket, class, phase, operation, kernel; as wide as the longer of {comparison.base.label} and{' '}
          {comparison.other.label}. Click to zoom.
        </span>
      </div>
      <div class="ss-compare-flame">
        <FlameChart
          label="Differences"
          testId="compare-flame"
          tree={tree}
          theme={theme}
          zoom={at < 0 ? undefined : at}
          onZoom={(row) => {
            view.focus.value = row === undefined ? undefined : paths[row];
          }}
          colourOf={colourOf}
          tipOf={tipOf}
          {...(matches === undefined ? {} : { isLit: (row: number) => matches(paths[row] ?? '') })}
        />
      </div>
    </div>
  );
}
