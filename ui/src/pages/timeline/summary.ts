// summary.ts: the timeline's sentence. It does not depend on the pages seen before. Pure.
import { formatDuration, plural } from '../../base/format.ts';
import type { RunDetail, Step } from '../../model/run.ts';
import { median } from '../../model/scale.ts';
import type { Track } from '../../model/track.ts';
import { lengthOf } from '../../model/viewport.ts';

export interface Summarised {
  readonly run: Pick<RunDetail, 'durationNs' | 'fit' | 'outside' | 'slices' | 'steps' | 'hosts'>;
  readonly tracks: readonly Pick<Track, 'kind'>[];
  readonly steps: readonly Pick<Step, 'durNs'>[];
}

export function summaryOf({ run, tracks, steps }: Summarised): string {
  const length = run.outside > 0 ? lengthOf(run.fit) : run.durationNs;
  const drawn = tracks.filter((track) => track.kind !== 'group').length;
  const hosts = run.hosts.length > 1 ? ` from ${plural(run.hosts.length, 'host')}` : '';
  const recorded = `${formatDuration(length)} recorded${hosts}, ${plural(run.slices, 'event')} on ${plural(drawn, 'track')}.`;
  const usual = median(steps.map((step) => step.durNs));
  if (usual === undefined || run.steps === 0) return recorded;
  const few = run.steps === 1 ? '1 step' : `${plural(run.steps, 'step')}, median`;
  return `${recorded} ${few} ${formatDuration(usual)}.`;
}
