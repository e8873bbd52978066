// The words around the flame graph: what a search found, the way to a zoom, the card of a box.

import { el } from './dom.js';
import { bytesText, countText, shareText, signed } from './format.js';
import { meanSize } from './measures.js';
import { foundTotals } from './flame_trees.js';
import { nameOn, placeOf } from './pieces.js';
import { sourceLine } from './source.js';
import { factTable } from './tip.js';

const SHOWN_CRUMBS = 3;

// Says how much the search found: its share and its value; in diff mode the change.
export function hitsText(app, trees, found) {
  const hits = foundTotals(trees, found);
  if (!hits.count) return 'no match';
  if (app.model.isDiff) {
    const change = signed(app.write, hits.after - hits.before);
    return `${shareText(hits.share)} · ${change}`;
  }
  return `${shareText(hits.share)} · ${app.write(hits.after)}`;
}

// Shows the way from the root to the zoom, or what the pivot is.
export function crumbs(app, zoomTo) {
  const { state } = app;
  const attributes = { cls: 'crumbs', 'aria-label': 'Zoom', tid: 'crumbs' };
  const host = content => el('nav', attributes, content);
  if (state.pivot >= 0) {
    const leave = () => app.change({ pivot: -1 });
    return host([
      el('span', { cls: 'lab' }, 'Pivot on '), el('b', {}, nameOn(app, state.pivot, 44)),
      el('button', { cls: 'link', type: 'button', onclick: leave }, '✕ back to the whole'),
    ]);
  }
  const path = state.zoom;
  if (!path.length) {
    return host(app.model.isDiff ? null
      : el('span', { cls: 'lab' }, 'Click a box to zoom, Shift-click to pivot'));
  }
  const step = (text, length) => [
    length > 0 && el('i', { 'aria-hidden': 'true' }, '›'),
    el('button', {
      cls: 'link', type: 'button', onclick: () => zoomTo(path.slice(0, length)),
    }, text),
  ];
  const first = Math.max(0, path.length - SHOWN_CRUMBS);
  const { byLine } = state;
  const functionOf = key => byLine ? app.profile.frames.func[key] : key;
  const nameOf = key =>
    [nameOn(app, functionOf(key), 44), lineEnd(app.profile, byLine, key)].filter(Boolean);
  const rest = path.slice(first).map((key, i) => step(nameOf(key), first + i + 1));
  const left = first > 0 && [el('i', {}, '›'), el('span', { cls: 'where' }, '… ' + first)];
  return host([step(app.names.full(-1), 0), left, rest]);
}

// Returns what stands after the name of a frame in a graph by line: its line, as `:12`.
export function lineEnd({ frames }, byLine, frame) {
  const line = byLine && frame >= 0 ? frames.line[frame] : 0;
  return line ? ':' + line : '';
}

// Returns the whole name of a box.
export function boxName(app, tree, node) {
  return app.names.full(tree.func[node]) + lineEnd(app.profile, tree.byLine, tree.key[node]);
}

// Returns what stands after the name in a box: its value, in a comparison the change of it.
export function boxValue(app, tree, node) {
  const value = tree.after[node];
  return app.model.isDiff ? signed(app.write, value - tree.before[node]) : app.write(value);
}

// Returns the content of the card for a box.
export function boxCard(app, tree, node) {
  const f = tree.func[node];
  const rows = app.model.isDiff ? changeRows(app, tree, node) : valueRows(app, tree, node);
  const end = lineEnd(app.profile, tree.byLine, tree.key[node]);
  const source = end && sourceLine(app.profile, f, Number(end.slice(1)));
  return [
    el('div', { cls: 'fn' }, nameOn(app, f), end), f >= 0 && placeOf(app, f),
    source && el('code', {}, el('bdi', {}, source)), factTable(rows),
  ].filter(Boolean);
}

function changeRows(app, tree, node) {
  const before = tree.before[node];
  const change = tree.after[node] - before;
  const share = before ? ` (${signed(shareText, change / before)})` : ' (new)';
  return [
    ['before', app.write(before)], ['after', app.write(tree.after[node])],
    ['change', signed(app.write, change) + (change ? share : '')],
  ];
}

function valueRows(app, tree, node) {
  const { measure, companion } = app.model.question;
  const value = tree.after[node];
  const other = tree.objects[node];
  const withShare = amount => `${app.write(amount)} · ${shareText(amount / app.whole())}`;
  const isSpace = measure.kind === 'space';
  return [
    ['here (cum)', withShare(value)],
    tree.self && ['own (flat)', withShare(tree.self.after[node])],
    companion && other && [isSpace ? 'objects' : 'bytes', (isSpace ? countText : bytesText)(other)],
    companion && other && ['mean size', bytesText(meanSize(measure, value, other))],
  ];
}
