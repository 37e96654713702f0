// peaks.tsx: the peaks of the device with their source, and fields to enter others.
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Report } from '../../model/report.ts';
import { mainRoof, type Roof } from '../../model/roofline.ts';
import type { Store } from '../../state/store.ts';
import { GIGA, TERA } from '../shared/peaks.ts';

/** Parses a positive number; `undefined` for everything else. Pure. */
export function peakOf(text: string): number | undefined {
  const value = Number(text);
  return text.trim() !== '' && Number.isFinite(value) && value > 0 ? value : undefined;
}

export function Peaks({ store, report }: { readonly store: Store; readonly report: Report }): JSX.Element {
  const { peak, bandwidth } = store.view;
  const compute = mainRoof(report, 'compute');
  const memory = mainRoof(report, 'memory');
  const isEntered = peak.value !== undefined || bandwidth.value !== undefined;
  return (
    <fieldset class="ss-peaks" aria-label="Peaks of a device">
      <Field
        label="Compute peak"
        unit="TFLOP/s"
        value={peak.value}
        roof={compute}
        scale={TERA}
        onChange={(value) => {
          peak.value = value;
        }}
      />
      <Field
        label="Memory peak"
        unit="GB/s"
        value={bandwidth.value}
        roof={memory}
        scale={GIGA}
        onChange={(value) => {
          bandwidth.value = value;
        }}
      />
      {isEntered ? (
        <button
          type="button"
          class="ss-button ss-small"
          onClick={() => {
            peak.value = undefined;
            bandwidth.value = undefined;
          }}
        >
          Reset peaks
        </button>
      ) : undefined}
    </fieldset>
  );
}

function Field(props: {
  readonly label: string;
  readonly unit: string;
  readonly value: number | undefined;
  readonly roof: Roof | undefined;
  /** FLOP/s or bytes per second in one unit of the field. */
  readonly scale: number;
  readonly onChange: (value: number | undefined) => void;
}): JSX.Element {
  const { label, unit, value, roof, scale } = props;
  // What is typed and not yet entered outlasts a report that arrives meanwhile.
  const [draft, setDraft] = useState<string | undefined>(undefined);
  const source = roof?.source ?? 'unknown';
  const name = roof === undefined ? '' : `, ${roof.name}`;
  return (
    <label
      class="ss-field"
      title={`${label}${name}: ${source}. Type a number to replace it; clear the field to reset it.`}
    >
      <span>{label}</span>
      <input
        type="number"
        min="0"
        step="any"
        class="ss-filter"
        aria-label={`${label}, ${unit}`}
        placeholder={roof === undefined ? 'enter' : String(Number((roof.peak / scale).toPrecision(5)))}
        value={draft ?? value ?? ''}
        onInput={(event) => setDraft(event.currentTarget.value)}
        onChange={(event) => {
          setDraft(undefined);
          props.onChange(peakOf(event.currentTarget.value));
        }}
      />
      <span>
        {unit} <span class="ss-peak-source">({source})</span>
      </span>
    </label>
  );
}
