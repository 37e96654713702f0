// slider.tsx: the factor of one part of the path in the what-if scenario.
import type { JSX } from 'preact';
import { factorIn, MAX_FACTOR, UNCHANGED, withFactor } from '../../model/critical-path.ts';
import type { Store } from '../../state/store.ts';

const STEP = 0.05;

export function FactorSlider({
  store,
  name,
  selector,
}: {
  readonly store: Store;
  readonly name: string;
  /** `undefined`: no scenario can select this part. */
  readonly selector: string | undefined;
}): JSX.Element {
  const { whatIf } = store.view;
  if (selector === undefined)
    return (
      <span class="ss-quiet" title="No what-if selector selects this part">
        –
      </span>
    );
  const factor = factorIn(whatIf.value, selector);
  const text = `× ${factor.toFixed(2)}`;
  return (
    <span class={factor === UNCHANGED ? 'ss-factor' : 'ss-factor ss-factor-changed'}>
      <input
        type="range"
        min="0"
        max={MAX_FACTOR}
        step={STEP}
        value={factor}
        aria-label={`Factor of ${name}`}
        aria-valuetext={text}
        title={`${selector}: drag to change its time; double click: unchanged`}
        onInput={(event) => {
          whatIf.value = withFactor(whatIf.peek(), selector, Number(event.currentTarget.value));
        }}
        onDblClick={() => {
          whatIf.value = withFactor(whatIf.peek(), selector, UNCHANGED);
        }}
        onClick={(event) => event.stopPropagation()}
      />
      <output>{text}</output>
    </span>
  );
}
