// mfu.tsx: the card with the MFU, or with the data that is missing to compute it.
import type { JSX } from 'preact';
import { formatFlopRate, formatShare, plural } from '../../base/format.ts';
import { type Report, scalarOf } from '../../model/report.ts';
import { plainText } from '../../model/sentence.ts';
import { figurePage } from '../../model/tools.ts';
import { Badge } from '../../widgets/badge.tsx';
import { CopyButton } from '../../widgets/states.tsx';
import { PageLink } from '../shared/links.tsx';
import type { PageProps } from '../shared/report.tsx';

export interface MfuTold {
  /** Share of the devices' peak; `undefined`: the peak is unknown. */
  readonly share: number | undefined;
  /** The user entered the peak. */
  readonly isOwnPeak: boolean;
  readonly rate: number;
  /** Peak of one device, TFLOP/s. */
  readonly peak: number | undefined;
  readonly devices: number;
  readonly counted: string;
}

/** Returns the report's figures; the user's peak per device (TFLOP/s) replaces the report's. Pure. */
export function mfuOf(report: Report, ownPeak: number | undefined): MfuTold | undefined {
  const number = (key: string) => {
    const value = scalarOf(report, key);
    return typeof value === 'number' ? value : undefined;
  };
  const rate = number('teraflops_per_second');
  if (rate === undefined) return undefined;
  const devices = Math.max(number('devices') ?? 1, 1e-9);
  const told = number('mfu_share');
  const counted = scalarOf(report, 'counted');
  return {
    share: ownPeak === undefined ? told : rate / (ownPeak * devices),
    isOwnPeak: ownPeak !== undefined,
    rate,
    peak: ownPeak ?? number('peak_teraflops_per_second'),
    devices,
    counted: typeof counted === 'string' ? counted : '',
  };
}

/** Formats a rate in TFLOP/s: `1.81 TFLOP/s`. */
const rateText = (rate: number): string => formatFlopRate(rate * 1e12);

/** Returns why the MFU is unknown, from the figures of the report. Pure. */
export function whyUnknown(report: Report): string {
  const covered = scalarOf(report, 'covered_share');
  const uncounted = scalarOf(report, 'uncounted_calls');
  const share = typeof covered === 'number' ? formatShare(covered) : 'a part';
  return typeof uncounted === 'number' && uncounted > 0
    ? `${plural(uncounted, 'product')} without shapes; those with shapes hold ${share} of the products’ time.`
    : `Operators with shapes launched only ${share} of the products’ time.`;
}

const isTyped = (text: string): boolean => Number.isFinite(Number(text)) && Number(text) > 0;

function PeakField({ store }: PageProps): JSX.Element {
  const { peak } = store.view;
  return (
    <label class="ss-peak">
      <span>Peak of a device, TFLOP/s</span>
      <input
        type="number"
        min="0"
        step="any"
        class="ss-filter"
        value={peak.value ?? ''}
        onChange={(event) => {
          const text = event.currentTarget.value;
          peak.value = isTyped(text) ? Number(text) : undefined;
        }}
      />
    </label>
  );
}

export function MfuCard({ page, report }: { readonly page: PageProps; readonly report: Report }): JSX.Element {
  const { missing } = report;
  const told = mfuOf(report, page.store.view.peak.value);
  if (missing !== undefined || told === undefined) {
    return (
      <div
        class="ss-figure-card"
        data-testid="mfu"
        data-state="not-recorded"
        title={[plainText(report.sentence), missing?.fix ?? ''].filter((text) => text !== '').join('\n')}
      >
        <span class="ss-card-title">MFU</span>
        <span class="ss-card-value ss-card-unknown">unknown</span>
        {missing === undefined ? (
          <span class="ss-card-note ss-card-two">{whyUnknown(report)}</span>
        ) : missing.fix === '' ? (
          <span class="ss-card-note">the trace has no FLOP counts</span>
        ) : (
          <details class="ss-card-more">
            <summary class="ss-card-note">the trace has no FLOP counts</summary>
            <div>
              This would record them:
              <code class="ss-code">{missing.fix}</code> <CopyButton text={missing.fix} />
            </div>
          </details>
        )}
      </div>
    );
  }
  const { share, rate, peak, counted, isOwnPeak } = told;
  const texts = [report.sentence, ...report.notes].map(plainText);
  const uncounted = scalarOf(report, 'uncounted_calls');
  const figure = share === undefined ? rateText(rate) : formatShare(share);
  const [, value = figure, unit = ''] = /^(.*\d) (.+)$/.exec(figure) ?? [];
  return (
    <div
      class="ss-figure-card"
      data-testid="mfu"
      data-state={share === undefined ? 'no-peak' : isOwnPeak ? 'own-peak' : 'known'}
      title={texts.join('\n')}
    >
      <span class="ss-card-title">
        {share === undefined ? 'Arithmetic rate' : 'MFU'}{' '}
        <Badge word="est." why={texts.map((text) => text.replace(/\.?$/, '.')).join(' ')} />
      </span>
      <PageLink
        {...page}
        {...figurePage(page.run, 'mfu_share')}
        class="ss-card-value"
        title={plainText(report.sentence)}
      >
        {value}
        <small> {unit}</small>
      </PageLink>
      <span class="ss-card-note ss-card-two">
        {share === undefined
          ? `${counted}; peak unknown`
          : `${rateText(rate)} of ${rateText((peak ?? 0) * told.devices)}, ${counted}`}
        {typeof uncounted === 'number' && uncounted > 0 ? `; ${plural(uncounted, 'call')} not counted` : ''}
      </span>
      {share === undefined || isOwnPeak ? (
        <details class="ss-card-more">
          <summary class="ss-card-note">{isOwnPeak ? 'Change the peak' : 'Enter the peak'}</summary>
          <div>
            <PeakField {...page} />
          </div>
        </details>
      ) : undefined}
    </div>
  );
}
