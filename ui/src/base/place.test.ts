import { expect, test } from 'vitest';
import { below, placeOf, within } from './place.ts';

test('the place is what stands before the files', () => {
  expect(placeOf('http://localhost:8791/assets/index-a1.js')).toBe('');
  expect(placeOf('http://h:6006/data/plugin/stepscope/app/assets/index-a1.js')).toBe('/data/plugin/stepscope/app');
  expect(placeOf('https://h/assets/x/assets/index-a1.js')).toBe('/assets/x');
  expect(placeOf('http://localhost:5173/src/base/place.ts')).toBe('');
});

test('paths of the browser and addresses of the viewer are distinguished', () => {
  expect(below('/run/a')).toBe('/run/a');
  expect(within('/run/a')).toBe('/run/a');
  expect(within('/x/run/a', '/x')).toBe('/run/a');
  expect(within('/xy/run/a', '/x')).toBe('/xy/run/a');
});
