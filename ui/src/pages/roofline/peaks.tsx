// peaks.tsx: the peaks of the device with their source, and fields to enter others.
import type { JSX } from 'preact';
import type { Roof } from '../../model/roofline.ts';
import type { Store } from '../../state/store.ts';
import { GIGA, TERA } from '../shared/peaks.ts';

/** Parses a positive number; `undefined` for everything else. Pure. */
export function peakOf(text: string): number | undefined {
  const value = Number(text);
  return text.trim() !== '' && Number.isFinite(value) && value > 0 ? value : undefined;
}

export function Peaks({ store, roofs }: { readonly store: Store; readonly roofs: readonly Roof[] }): JSX.Element {
  const { peak, bandwidth } = store.view;
  const sourceOf = (kind: Roof['kind']): string => {
    const found = [...new Set(roofs.filter((roof) => roof.kind === kind).map(({ source }) => source))];
    return found.length === 0 ? 'unknown' : found.join(', ');
  };
  const isEntered = peak.value !== undefined || bandwidth.value !== undefined;
  return (
    <fieldset class="ss-peaks" aria-label="Peaks of a device">
      <Field
        label="Compute peak"
        unit="TFLOP/s"
        value={peak.value}
        known={reported(roofs, 'compute', TERA)}
        source={sourceOf('compute')}
        onChange={(value) => {
          peak.value = value;
        }}
      />
      <Field
        label="Memory peak"
        unit="GB/s"
        value={bandwidth.value}
        known={reported(roofs, 'memory', GIGA)}
        source={sourceOf('memory')}
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

/** Returns the highest reported peak in a unit. */
function reported(roofs: readonly Roof[], kind: Roof['kind'], unit: number): number | undefined {
  const peaks = roofs.filter((roof) => roof.kind === kind).map((roof) => roof.peak);
  return peaks.length === 0 ? undefined : Number((Math.max(...peaks) / unit).toPrecision(5));
}

function Field(props: {
  readonly label: string;
  readonly unit: string;
  readonly value: number | undefined;
  readonly known: number | undefined;
  readonly source: string;
  readonly onChange: (value: number | undefined) => void;
}): JSX.Element {
  const { label, unit, value, known, source } = props;
  return (
    <label class="ss-field" title={`${label}: ${source}. Type a number to replace it; clear the field to reset it.`}>
      <span>{label}</span>
      <input
        type="number"
        min="0"
        step="any"
        class="ss-filter"
        aria-label={`${label}, ${unit}`}
        placeholder={known === undefined ? 'enter' : String(known)}
        value={value ?? ''}
        onChange={(event) => props.onChange(peakOf(event.currentTarget.value))}
      />
      <span>
        {unit} <span class="ss-peak-source">({source})</span>
      </span>
    </label>
  );
}
