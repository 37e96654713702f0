// editor.tsx: the query as text, with completion of tables, columns and functions.
import type { JSX } from 'preact';
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { type Completions, completionsAt, type SqlSchema } from '../../model/sql.ts';

const NO_WORDS: Completions = { from: 0, words: [] };
const LINE_PX = 20;
const PADDING_PX = 8;
const LEAST_LINES = 6;
const MOST_LINES = 16;

export function Editor(props: {
  readonly text: string;
  readonly schema: SqlSchema | undefined;
  /** Position that an error names. */
  readonly errorAt: number | undefined;
  readonly onText: (text: string) => void;
  readonly onRun: () => void;
}): JSX.Element {
  const { text, schema, errorAt } = props;
  const field = useRef<HTMLTextAreaElement>(null);
  const list = useId();
  const [found, setFound] = useState<Completions>(NO_WORDS);
  const [chosen, setChosen] = useState(0);
  const [scroll, setScroll] = useState({ x: 0, y: 0 });
  /** Position of the caret after the next drawing. */
  const caret = useRef<number | undefined>(undefined);

  useLayoutEffect(() => {
    const at = caret.current;
    caret.current = undefined;
    if (at !== undefined) field.current?.setSelectionRange(at, at);
  }, [text]);
  useEffect(() => {
    if (errorAt === undefined) return;
    field.current?.focus();
    field.current?.setSelectionRange(errorAt, errorAt);
  }, [errorAt]);

  const close = () => setFound(NO_WORDS);
  const complete = (value: string, at: number, always = false) => {
    setChosen(0);
    setFound(schema === undefined ? NO_WORDS : completionsAt(value, at, schema, always));
  };
  const accept = (at: number) => {
    const word = found.words[at]?.word;
    const end = field.current?.selectionStart;
    if (word === undefined || end === undefined) return;
    caret.current = found.from + word.length;
    props.onText(text.slice(0, found.from) + word + text.slice(end));
    close();
    field.current?.focus();
  };
  const isOpen = found.words.length > 0;
  const onKeyDown = (event: KeyboardEvent) => {
    const at = field.current?.selectionStart ?? 0;
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      close();
      props.onRun();
    } else if (event.key === ' ' && event.ctrlKey) {
      complete(text, at, true);
    } else if (!isOpen) {
      return;
    } else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      const step = event.key === 'ArrowDown' ? 1 : -1;
      setChosen((chosen + step + found.words.length) % found.words.length);
    } else if ((event.key === 'Enter' || event.key === 'Tab') && !event.shiftKey) {
      accept(chosen);
    } else if (event.key === 'Escape') {
      close();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  const before = text.slice(0, found.from).split('\n');
  const column = before[before.length - 1]?.length ?? 0;
  const lines = Math.max(LEAST_LINES, Math.min(MOST_LINES, text.split('\n').length));
  return (
    <div class="ss-sql-editor">
      <textarea
        ref={field}
        aria-label="Query"
        aria-autocomplete="list"
        aria-haspopup="listbox"
        aria-controls={list}
        {...(isOpen ? { 'aria-activedescendant': `${list}-${chosen}` } : {})}
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        wrap="off"
        placeholder="SELECT … FROM …"
        value={text}
        style={{ height: `${lines * LINE_PX + 2 * PADDING_PX + 18}px` }}
        onInput={(event) => {
          const { value, selectionStart } = event.currentTarget;
          props.onText(value);
          complete(value, selectionStart);
        }}
        onKeyDown={onKeyDown}
        onScroll={(event) => setScroll({ x: event.currentTarget.scrollLeft, y: event.currentTarget.scrollTop })}
        onClick={close}
        onBlur={close}
      />
      <div
        id={list}
        role="listbox"
        aria-label="Completions"
        class="ss-sql-words"
        hidden={!isOpen}
        style={{
          left: `calc(${column}ch + ${PADDING_PX - scroll.x}px)`,
          top: `${before.length * LINE_PX + PADDING_PX - scroll.y}px`,
        }}
      >
        {found.words.map(({ word, kind, meaning }, at) => (
          <div
            key={word}
            id={`${list}-${at}`}
            role="option"
            tabIndex={-1}
            aria-selected={at === chosen}
            // The text keeps the focus.
            onPointerDown={(event) => {
              event.preventDefault();
              accept(at);
            }}
          >
            <code>{word}</code>
            <span class="ss-quiet">{kind}</span>
            <span class="ss-quiet ss-sql-meaning">{meaning}</span>
          </div>
        ))}
      </div>
    </div>
  );
}
