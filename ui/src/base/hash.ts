// hash.ts: stable hashes of names, for colours.

/** FNV-1a over UTF-16 units: names that differ in one digit have different hashes. */
export function hashOf(name: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < name.length; at += 1) hash = Math.imul(hash ^ name.charCodeAt(at), 0x01000193);
  return hash >>> 0;
}

/** FNV-1a over UTF-16 units without digits: `fusion.3` and `fusion.12` have the same hash. */
export function hashWithoutDigits(name: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < name.length; at += 1) {
    const unit = name.charCodeAt(at);
    if (unit >= 48 && unit <= 57) continue;
    hash = Math.imul(hash ^ unit, 0x01000193);
  }
  return hash >>> 0;
}
