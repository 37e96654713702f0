// lru.ts: a cache of the most recently used entries, limited by bytes.

interface Entry<V> {
  readonly value: V;
  readonly bytes: number;
}

/** A map that removes the least recently used entries once their total size exceeds `budgetBytes`. */
export class Lru<V> {
  private readonly entries = new Map<string, Entry<V>>();
  private usedBytes = 0;

  constructor(private readonly budgetBytes: number) {}

  get size(): number {
    return this.entries.size;
  }

  /** Returns an entry and marks it as used. */
  get(key: string): V | undefined {
    const entry = this.entries.get(key);
    if (entry === undefined) return undefined;
    this.entries.delete(key);
    this.entries.set(key, entry);
    return entry.value;
  }

  /** Returns an entry without marking it as used. */
  peek(key: string): V | undefined {
    return this.entries.get(key)?.value;
  }

  set(key: string, value: V, bytes: number): void {
    this.usedBytes -= this.entries.get(key)?.bytes ?? 0;
    this.entries.delete(key);
    this.entries.set(key, { value, bytes });
    this.usedBytes += bytes;
    for (const [oldest, entry] of this.entries) {
      if (this.usedBytes <= this.budgetBytes || this.entries.size === 1) break;
      this.entries.delete(oldest);
      this.usedBytes -= entry.bytes;
    }
  }

  clear(): void {
    this.entries.clear();
    this.usedBytes = 0;
  }
}
