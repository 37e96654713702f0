import { describe, expect, it } from 'vitest';
import { Gate, isAbort } from './gate.ts';

/** Tasks that end when told to, and the order in which they began. */
function bench(limit: number) {
  const gate = new Gate(limit);
  const began: string[] = [];
  const ends = new Map<string, () => void>();
  const add = (name: string, urgency: 'now' | 'soon' | 'later', signal?: AbortSignal) =>
    gate.run(urgency, signal, () => {
      began.push(name);
      return new Promise<string>((resolve) => ends.set(name, () => resolve(name)));
    });
  const end = async (name: string) => {
    ends.get(name)?.();
    await new Promise((resolve) => setTimeout(resolve, 0));
  };
  return { began, add, end };
}

describe('Gate', () => {
  it('lets no more than its limit run, the most urgent first', async () => {
    const { began, add, end } = bench(2);
    add('a', 'later');
    add('b', 'later');
    add('c', 'later');
    add('d', 'now');
    add('e', 'now');
    expect(began).toEqual(['a', 'b']);
    await end('a');
    expect(began).toEqual(['a', 'b', 'd']);
    await end('b');
    await end('d');
    expect(began).toEqual(['a', 'b', 'd', 'e', 'c']);
  });

  it('forgets what was cancelled before its turn', async () => {
    const { began, add, end } = bench(1);
    const abort = new AbortController();
    add('a', 'now');
    const cancelled = add('b', 'now', abort.signal).catch((error: unknown) => isAbort(error));
    add('c', 'now');
    abort.abort();
    expect(await cancelled).toBe(true);
    await end('a');
    expect(began).toEqual(['a', 'c']);
  });

  it('goes on after a task that failed', async () => {
    const gate = new Gate(1);
    await expect(gate.run('now', undefined, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
    expect(await gate.run('now', undefined, () => Promise.resolve(3))).toBe(3);
  });
});
