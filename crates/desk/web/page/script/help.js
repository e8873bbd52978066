// The dialog with all keys, and what the words mean.

import { el } from './dom.js';
import { factTable } from './tip.js';

const KEYS = [
  ['1 … 7', 'views'], ['/', 'search'], ['↑ ↓ ← →', 'move in the flame graph, table or timeline'],
  ['Enter', 'zoom; in the table: pivot'], ['P', 'pivot on the selected function'],
  ['Esc', 'one step back: search, pivot, zoom, selection, comparison'],
  ['I  F  L', 'inverted, flip, by line'], ['O', 'own code only'], ['B', 'bytes or objects'],
  ['S  T', 'SQL, light or dark'], ['A', 'assembly, with heapprof web --source'], ['Shift-← →', 'timeline: widen the comparison'],
  ['?', 'this list'],
];
const WORDS = [
  ['flat', 'what a function allocated itself'],
  ['cum', 'the same, plus everything that it calls; recursion counts once'],
  ['pivot', 'one function in the middle: callers above, callees below'],
  ['inverted', 'functions that allocate first, then their callers'],
  ['own code', 'memory of libraries is attributed to the nearest caller in your own code'],
  ['patterns', 'are like those of heapprof top: case counts, (?i) at the start turns that off'],
];

// Opens the dialog. It removes itself when it is closed.
export function showHelp() {
  if (document.querySelector('dialog')) return;
  const close = el('form', { method: 'dialog' }, el('button', {}, 'Close'));
  const dialog = el('dialog', { 'aria-label': 'Keys and words', tid: 'help' },
    el('h2', {}, 'Keys'), factTable(KEYS), el('h2', {}, 'Words'), factTable(WORDS), close);
  document.body.append(dialog);
  dialog.addEventListener('close', () => dialog.remove());
  dialog.showModal();
}
