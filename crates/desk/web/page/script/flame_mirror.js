// Keeps a table beside the canvas that says the same to screen readers and to tests.

import { el, fill } from './dom.js';
import { shareText } from './format.js';
import { largeNodes } from './flame_layout.js';
import { boxName } from './flame_words.js';

const LEAST_ROW = 0.004;
const LIMIT = 400;

// Makes the empty table. It takes the focus for the canvas.
export function makeMirror(listeners) {
  return el('table', {
    cls: 'sr mirror', role: 'treegrid', tabindex: 0, tid: 'flame-mirror', ...listeners,
    'aria-label': 'Call tree of the flame graph. Arrow keys move, Enter zooms, P pivots.',
  });
}

// Fills the table with the boxes that are large enough to matter.
export function fillMirror(mirror, app, { down, up, key, zoom, active }) {
  const { isDiff } = app.model;
  const titles = ['Function', isDiff ? 'Before' : 'Flat', isDiff ? 'After' : 'Cum', 'Share'];
  const head = titles.map(title => el('th', { role: 'columnheader', scope: 'col' }, title));
  // Rows are copies of one, which is faster than making each of its cells.
  const blank = el('tr', { role: 'row' }, titles.map(() => el('td', { role: 'gridcell' })));
  const list = (tree, zoomed, mark) => largeNodes(
    tree, key, zoomed, LEAST_ROW, LIMIT, app.names.raw).map(([node, level]) =>
    mirrorRow(app, tree, node, level, { key, mark, blank }));
  const callers = up ? list(up, 0, 'called by ').slice(1) : [];
  fill(mirror,
    el('thead', { role: 'rowgroup' }, el('tr', { role: 'row' }, head)),
    el('tbody', { role: 'rowgroup' }, list(down, zoom, ''), callers));
  markActive(mirror, active);
}

// Marks the row of the box that has the keyboard.
export function markActive(mirror, active) {
  for (const row of mirror.querySelectorAll('[aria-selected=true]')) {
    row.setAttribute('aria-selected', 'false');
  }
  const row = mirror.querySelector('#' + rowId('', active));
  if (row) {
    row.setAttribute('aria-selected', 'true');
    mirror.setAttribute('aria-activedescendant', row.id);
  } else {
    mirror.removeAttribute('aria-activedescendant');
  }
}

function mirrorRow(app, tree, node, level, { key, mark, blank }) {
  const f = tree.func[node];
  const { isDiff } = app.model;
  const first = isDiff ? tree.before[node] : tree.self ? tree.self.after[node] : null;
  const row = blank.cloneNode(true);
  const set = (name, value) => row.setAttribute(name, value);
  set('id', rowId(mark, node));
  set('aria-level', level);
  set('aria-selected', 'false');
  if (tree.first[node] >= 0) set('aria-expanded', 'true');
  set('data-name', f < 0 ? app.profile.program : app.profile.functionName[f]);
  set('data-value', tree.after[node]);
  if (isDiff) set('data-before', tree.before[node]);
  if (tree.byLine && f >= 0) set('data-line', app.profile.frames.line[tree.key[node]]);
  const texts = [mark + boxName(app, tree, node), first == null ? '' : app.write(first),
    app.write(tree.after[node]), shareText(tree.weight[key][node] / app.whole())];
  texts.forEach((text, i) => row.cells[i].append(text));
  return row;
}

function rowId(mark, node) {
  return (mark ? 'up-' : 'box-') + node;
}
