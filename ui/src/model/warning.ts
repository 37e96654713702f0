// warning.ts: what the rail says of the warnings of a run. Pure.
import { plural } from '../base/format.ts';
import type { RunWarning } from './run.ts';

export interface WarningBadge {
  readonly text: string;
  /** What fits into the narrow rail; empty where nothing is counted. */
  readonly short: string;
  /** Something is missing or could not be read. */
  readonly isLoud: boolean;
}

/** Losses count first, else notices. What is normal in such a trace is listed and not counted. */
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
