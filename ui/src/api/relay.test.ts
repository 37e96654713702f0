import { describe, expect, it } from 'vitest';
import { relay, type StreamMessage, type Tabs } from './relay.ts';

/** A browser: tabs that hear each other, and a lock that the oldest of those that wait gets. */
function browser() {
  const channels = new Set<{ onmessage: ((event: MessageEvent) => void) | null }>();
  const waiting: { signal: AbortSignal; lead: () => void }[] = [];
  let leads = false;
  const next = () => {
    const first = waiting.shift();
    if (first === undefined) return;
    if (first.signal.aborted) return next();
    leads = true;
    first.signal.addEventListener('abort', () => {
      leads = false;
      next();
    });
    first.lead();
  };
  const tab = (): Tabs => {
    const channel: Tabs['channel'] = {
      onmessage: null,
      postMessage: (data) => {
        for (const other of channels) if (other !== channel) other.onmessage?.({ data } as MessageEvent);
      },
      close: () => channels.delete(channel),
    };
    channels.add(channel);
    return {
      channel,
      elect: (signal, lead) => {
        waiting.push({ signal, lead });
        if (!leads) next();
      },
    };
  };
  return tab;
}

/** The server's side: streams that are open. */
function server() {
  const streams = new Set<(message: StreamMessage) => void>();
  const open = (hear: (message: StreamMessage) => void) => {
    streams.add(hear);
    hear({ kind: 'event', name: 'hello', data: '{}' });
    return () => {
      streams.delete(hear);
    };
  };
  const say = (name: string) => {
    for (const hear of streams) hear({ kind: 'event', name, data: '{}' });
  };
  return { streams, open, say };
}

describe('relay', () => {
  it('opens one stream for eight tabs, and all hear it', () => {
    const tab = browser();
    const { streams, open, say } = server();
    const heard = Array.from({ length: 8 }, () => [] as string[]);
    const stops = heard.map((list) =>
      relay(tab(), open, (message) => list.push(message.kind === 'event' ? message.name : 'lost')),
    );
    expect(streams.size).toBe(1);
    say('run-added');
    for (const list of heard) expect(list).toEqual(['hello', 'run-added']);
    for (const stop of stops) stop();
    expect(streams.size).toBe(0);
  });

  it('hands the stream to another tab when the one that leads closes', () => {
    const tab = browser();
    const { streams, open, say } = server();
    const heard: string[] = [];
    const stop = relay(tab(), open, () => undefined);
    relay(tab(), open, (message) => heard.push(message.kind === 'event' ? message.name : 'lost'));
    stop();
    expect(streams.size).toBe(1);
    say('run-changed');
    expect(heard).toEqual(['hello', 'hello', 'run-changed']);
  });

  it('opens a stream of its own where tabs cannot find each other', () => {
    const { streams, open } = server();
    const stops = [relay(undefined, open, () => undefined), relay(undefined, open, () => undefined)];
    expect(streams.size).toBe(2);
    for (const stop of stops) stop();
    expect(streams.size).toBe(0);
  });
});
