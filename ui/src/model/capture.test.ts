import { describe, expect, it } from 'vitest';
import {
  allAddresses,
  type Capture,
  hostText,
  phaseText,
  splitAddresses,
  typedOption,
  wholeNumber,
} from './capture.ts';

const CAPTURE: Capture = {
  id: 'a-1',
  seq: 1,
  phase: 'recording',
  stopping: false,
  attempt: 1,
  elapsedMs: 100,
  totalMs: 1000,
  hosts: [],
  run: undefined,
  message: undefined,
};

describe('addresses', () => {
  it('stand between commas or spaces', () => {
    expect(splitAddresses(' a:1, b:2;c:3\nd:4,, ')).toEqual(['a:1', 'b:2', 'c:3', 'd:4']);
    expect(splitAddresses('  ')).toEqual([]);
  });

  it('of further hosts take the port of the first, once each', () => {
    expect(allAddresses('localhost:9012', 'w1, w2:9013 localhost')).toEqual(['localhost:9012', 'w1:9012', 'w2:9013']);
    expect(allAddresses('grpc://[::1]:9012/', '[2001:db8::7] [::1]:9')).toEqual([
      'grpc://[::1]:9012/',
      '[2001:db8::7]:9012',
      '[::1]:9',
    ]);
    expect(allAddresses('a', 'b')).toEqual(['a', 'b']);
  });
});

it('reads options by their look', () => {
  expect(['true', ' false', '-7', '1e3', '0x10', 'TRACE_ONLY', '9007199254740993'].map(typedOption)).toEqual([
    true,
    false,
    -7,
    '1e3',
    '0x10',
    'TRACE_ONLY',
    '9007199254740993',
  ]);
});

it('takes whole numbers within bounds only', () => {
  expect(['1', ' 60 ', '0', '61', '1.5', '-1', '1e1', ''].map((text) => wholeNumber(text, 1, 60))).toEqual([
    1,
    60,
    ...Array(6).fill(undefined),
  ]);
});

it('says what is going on', () => {
  expect(phaseText(CAPTURE)).toBe('Recording');
  expect(phaseText({ ...CAPTURE, attempt: 2, phase: 'connecting' })).toBe('Connecting, attempt 2');
  expect(phaseText({ ...CAPTURE, stopping: true })).toBe('Stopping');
  expect(phaseText({ ...CAPTURE, stopping: true, phase: 'failed' })).toBe('Failed');
  const host = { address: 'a:1', message: undefined, bytes: 0, events: 0 };
  expect(hostText({ ...host, state: 'failed', stage: 'timed-out' })).toBe('timed out');
  expect(hostText({ ...host, state: 'collecting', stage: undefined })).toBe('sending its data');
});
