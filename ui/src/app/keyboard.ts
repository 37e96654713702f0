// keyboard.ts: maps keys to commands. Ignores keys typed into a field, except for bindings that allow it.
import { TOOLS } from '../model/generated.ts';
import { announce, overlay, run } from '../state/commands.ts';
import { type Binding, bindingOf } from '../state/keys.ts';
import { compareWith, goTo, queryOf, type Store } from '../state/store.ts';

const CHORD_MS = 1500;
/** Letter of the page of two runs, which is no tool of a run. */
const COMPARE_LETTER = 'c';
/** Letter of the SQL page. */
const SQL_LETTER = 'q';

function isField(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !['checkbox', 'radio', 'button', 'range'].includes(target.type);
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement || target.isContentEditable;
}

export function bindKeyboard(store: Store): () => void {
  const down = new Map<string, Binding>();
  let chordUntilMs = 0;

  const goToTool = (letter: string) => {
    const tool = TOOLS.find((item) => item.letter === letter.toLowerCase());
    const id = store.runId.peek();
    if (letter.toLowerCase() === COMPARE_LETTER) {
      if (store.place.peek().kind !== 'compare') goTo(store, compareWith(id));
      return;
    }
    if (letter.toLowerCase() === SQL_LETTER) {
      if (store.place.peek().kind !== 'sql') goTo(store, queryOf(id));
      return;
    }
    if (tool === undefined) return;
    if (id === undefined) announce('Open a run first');
    else goTo(store, { kind: 'tool', run: id, tool: tool.id });
  };

  const onDown = (event: KeyboardEvent) => {
    if (event.defaultPrevented) return;
    const inField = isField(event.target);
    if (overlay.peek() !== undefined && event.key !== 'Escape') return;
    if (
      !inField &&
      performance.now() < chordUntilMs &&
      !event.ctrlKey &&
      !event.metaKey &&
      /^Key[A-Z]$/.test(event.code)
    ) {
      chordUntilMs = 0;
      event.preventDefault();
      goToTool(event.code.slice(3));
      return;
    }
    const place = store.place.peek();
    const scope = place.kind === 'tool' && place.tool === 'timeline' ? 'timeline' : 'anywhere';
    const binding = bindingOf(event, scope, inField);
    if (binding === undefined) return;
    // Buttons handle Enter and Space; tables and tabs have already handled arrows.
    if (binding.command === 'chord') {
      chordUntilMs = performance.now() + CHORD_MS;
      event.preventDefault();
      return;
    }
    if (binding.command === 'copy' && (getSelection()?.toString() ?? '') !== '') return;
    if (event.repeat && binding.hold === true) {
      event.preventDefault();
      return;
    }
    if (run(binding.command, 'down')) {
      event.preventDefault();
      if (binding.hold === true) down.set(event.code, binding);
    }
  };
  const onUp = (event: KeyboardEvent) => {
    const binding = down.get(event.code);
    if (binding === undefined) return;
    down.delete(event.code);
    run(binding.command, 'up');
  };
  const onBlur = () => {
    for (const binding of down.values()) run(binding.command, 'up');
    down.clear();
  };
  addEventListener('keydown', onDown);
  addEventListener('keyup', onUp);
  addEventListener('blur', onBlur);
  return () => {
    removeEventListener('keydown', onDown);
    removeEventListener('keyup', onUp);
    removeEventListener('blur', onBlur);
  };
}
