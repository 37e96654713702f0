import { describe, expect, it } from 'vitest';
import { BINDINGS, bindingOf, helpLines, type KeyLike } from './keys.ts';

const key = (code: string, more: Partial<KeyLike> = {}): KeyLike => ({
  code,
  key: code.replace(/^Key/, '').toLowerCase(),
  ctrlKey: false,
  metaKey: false,
  shiftKey: false,
  altKey: false,
  ...more,
});
const command = (event: KeyLike, scope: 'timeline' | 'anywhere' = 'timeline', inField = false) =>
  bindingOf(event, scope, inField)?.command;

describe('bindingOf', () => {
  it('follows the place of a key for letters, and what is typed for signs', () => {
    expect(command(key('KeyW', { key: 'z' }))).toBe('zoom-in');
    expect(command(key('KeyZ', { key: 'y' }))).toBe('fit');
    expect(command(key('Digit7', { key: '/', shiftKey: true }))).toBe('search');
    expect(command(key('Minus', { key: '?', shiftKey: true }))).toBe('help');
    expect(command(key('Comma', { key: '<', shiftKey: true }))).toBe('step-previous');
    expect(command(key('Comma', { key: ',' }))).toBe('event-previous');
  });

  it('tells Shift and Ctrl apart', () => {
    expect(command(key('KeyA', { shiftKey: true }))).toBe('page-left');
    expect(command(key('KeyD'))).toBe('pan-right');
    expect(command(key('KeyD', { ctrlKey: true }))).toBeUndefined();
    expect(command(key('KeyC'))).toBe('collapse');
    expect(command(key('KeyX'))).toBe('critical-path');
    expect(command(key('KeyC', { metaKey: true }))).toBe('copy');
    expect(command(key('KeyP', { ctrlKey: true }))).toBe('go-to-track');
    expect(command(key('KeyR', { ctrlKey: true }))).toBeUndefined();
    expect(command(key('KeyD', { altKey: true }))).toBeUndefined();
  });

  it('leaves fields alone, but for the keys that work there', () => {
    for (const code of ['KeyW', 'KeyF', 'Slash', 'Digit0'])
      expect(command(key(code, { key: code === 'Slash' ? '/' : '0' }), 'timeline', true)).toBeUndefined();
    expect(command(key('Escape', { key: 'Escape' }), 'timeline', true)).toBe('escape');
    expect(command(key('KeyK', { ctrlKey: true }), 'timeline', true)).toBe('palette');
  });

  it('keeps timeline keys on the timeline', () => {
    expect(command(key('KeyW'), 'anywhere')).toBeUndefined();
    expect(command(key('KeyG'), 'anywhere')).toBe('chord');
    expect(command(key('KeyT'), 'anywhere')).toBe('theme');
  });

  it('has no two bindings for one key', () => {
    const seen = new Set<string>();
    for (const b of BINDINGS) {
      const id = `${b.sign ?? b.code}/${b.sign === undefined ? (b.shift ?? false) : ''}/${b.mod ?? false}`;
      expect(seen.has(id), id).toBe(false);
      seen.add(id);
    }
  });

  it('lists what it binds, in the letters of the user', () => {
    const text = JSON.stringify(helpLines((code) => (code === 'KeyW' ? 'Z' : code.slice(3))));
    expect(text).toContain('Z / S');
    for (const word of ['zoom in', 'search', 'follow a link', 'pin / hide / collapse', 'go to:', 'copy the link'])
      expect(text).toContain(word);
  });
});
