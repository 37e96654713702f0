// warning.ts: the rail's badge for the warnings of a run. Pure.
import { plural } from '../base/format.ts';
import type { RunWarning } from './run.ts';

export interface WarningBadge {
  readonly text: string;
  /** Text that fits into the narrow rail; empty if nothing is counted. */
  readonly short: string;
  /** Data is missing or could not be read. */
  readonly isLoud: boolean;
}

/** Counts losses, else notices. Normal properties of a trace are listed without a count. */
export function badgeOf(warnings: readonly RunWarning[]): WarningBadge | undefined {
  if (warnings.length === 0) return undefined;
  const count = (...severities: readonly RunWarning['severity'][]) =>
    warnings.filter(({ severity }) => severities.includes(severity)).length;
  const losses = count('error', 'data-loss');
  if (losses > 0) return { text: plural(losses, 'warning'), short: String(losses), isLoud: true };
  const notices = count('notice');
  if (notices > 0) return { text: plural(notices, 'note'), short: String(notices), isLoud: false };
  return { text: 'Notes', short: '', isLoud: false };
}
