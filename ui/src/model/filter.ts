// filter.ts: the track filter. Commas separate alternatives, `!word` excludes, `/regex/` is a regular expression.

export type Filter = (text: string) => boolean;

export interface FilterProblem {
  readonly part: string;
  readonly reason: string;
}

export interface ParsedFilter {
  /** `undefined`: everything matches. */
  readonly matches: Filter | undefined;
  readonly problem: FilterProblem | undefined;
}

/** Splits at commas outside of `/…/` and outside of `<…>`, which belong to C++ names. */
function partsOf(text: string): string[] {
  const parts: string[] = [];
  let current = '';
  let inRegex = false;
  let within = 0;
  for (let at = 0; at < text.length; at += 1) {
    const char = text.charAt(at);
    const fresh = /^\s*!?\s*$/.test(current);
    if (char === '/' && (inRegex || fresh) && text.charAt(at - 1) !== '\\') {
      inRegex = !inRegex;
    }
    if (!inRegex && char === '<') within += 1;
    if (!inRegex && char === '>') within = Math.max(0, within - 1);
    if (char === ',' && !inRegex && within === 0) {
      parts.push(current);
      current = '';
    } else current += char;
  }
  parts.push(current);
  return parts.map((part) => part.trim()).filter((part) => part !== '');
}

/**
 * Parses a filter. `gpu, stream` matches text with either word; `!python` matches text without it; `gpu, !copy`
 * combines both. Several words in one part must all occur (`host stream`). Ignores case.
 */
export function parseFilter(text: string): ParsedFilter {
  const wanted: Filter[] = [];
  const unwanted: Filter[] = [];
  let problem: FilterProblem | undefined;
  for (const raw of partsOf(text)) {
    const negative = raw.startsWith('!');
    const part = negative ? raw.slice(1).trim() : raw;
    if (part === '') continue;
    let test: Filter;
    const regex = /^\/(.+)\/$/.exec(part);
    if (regex?.[1] !== undefined) {
      try {
        const expression = new RegExp(regex[1], 'i');
        test = (value) => expression.test(value);
      } catch (error) {
        problem = { part, reason: error instanceof Error ? error.message : String(error) };
        continue;
      }
    } else {
      const words = part.toLowerCase().split(/\s+/);
      test = (value) => {
        const lower = value.toLowerCase();
        return words.every((word) => lower.includes(word));
      };
    }
    (negative ? unwanted : wanted).push(test);
  }
  if (wanted.length === 0 && unwanted.length === 0) return { matches: undefined, problem };
  return {
    matches: (value) =>
      (wanted.length === 0 || wanted.some((test) => test(value))) && !unwanted.some((test) => test(value)),
    problem,
  };
}
