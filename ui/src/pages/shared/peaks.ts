// peaks.ts: the peaks of a device that the user entered; the address holds them.
import type { ReportQuery } from '../../api/reports.ts';
import type { EnteredPeaks } from '../../model/roofline.ts';
import type { Store } from '../../state/store.ts';

export const TERA = 1e12;
export const GIGA = 1e9;

/** Returns the entered peaks of the address. */
export const enteredOf = ({ view }: Store): EnteredPeaks => ({
  flopsPerSecond: view.peak.value === undefined ? undefined : view.peak.value * TERA,
  bytesPerSecond: view.bandwidth.value === undefined ? undefined : view.bandwidth.value * GIGA,
});

/** Returns the options of a report that takes peaks. */
export const peakOptions = (store: Store): Pick<ReportQuery, 'peakFlops' | 'peakBandwidth'> => {
  const { flopsPerSecond, bytesPerSecond } = enteredOf(store);
  return { peakFlops: flopsPerSecond, peakBandwidth: bytesPerSecond };
};
