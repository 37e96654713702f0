// peaks.ts: the peaks of a device that the user entered; the address holds them.
import type { ReportQuery } from '../../api/reports.ts';
import type { Store } from '../../state/store.ts';

export const TERA = 1e12;
export const GIGA = 1e9;

/** Returns the options of a report that takes peaks. */
export const peakOptions = ({ view }: Store): Pick<ReportQuery, 'peakFlops' | 'peakBandwidth'> => ({
  peakFlops: view.peak.value === undefined ? undefined : view.peak.value * TERA,
  peakBandwidth: view.bandwidth.value === undefined ? undefined : view.bandwidth.value * GIGA,
});
