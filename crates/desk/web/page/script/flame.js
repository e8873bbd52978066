// The flame graph: a canvas with boxes as wide as the memory that went through them.

import { makeFitter } from './canvas.js';
import { childrenOf, matches, pathOf } from './call_tree.js';
import { button, el, fill } from './dom.js';
import { ABOVE, DOWN, ROW, UP, boxUnder, layFlame } from './flame_layout.js';
import { fillMirror, makeMirror, markActive } from './flame_mirror.js';
import { paintFlame } from './flame_paint.js';
import { boxCard, boxName, boxValue, crumbs, hitsText, lineEnd } from './flame_words.js';
import { neighbourNode, treesFor } from './flame_trees.js';
import { changeTools, searchTools, widthTools } from './tools.js';
import { hideTip, showTip } from './tip.js';

const DIRECTIONS = {
  ArrowDown: 'down', ArrowUp: 'up', ArrowLeft: 'left', ArrowRight: 'right',
};
const UPSIDE_DOWN = { ArrowDown: 'up', ArrowUp: 'down' };

// Makes the view. What it remembers between draws is in `at`: elements, trees and the layout.
export function makeFlameView() {
  const at = { app: null, active: 0, layout: null, trees: null, found: null };
  return {
    id: 'flame', title: 'Flame', hasSearch: true, hasWidth: true,
    tools: app => flameTools(app),
    draw: (app, host) => drawFlame(app, at, host),
    mark: () => soon(at),
    search: () => search(at),
    resize: () => relayout(at),
    keys: event => flameKeys(at, event),
    destroy: () => { at.app = null; },
  };
}

function drawFlame(app, at, host) {
  const started = performance.now();
  if (at.names !== app.names) Object.assign(at, { names: app.names, fit: makeFitter(app.names) });
  at.app = app;
  at.trees = treesFor(app);
  at.active = at.trees.zoom;
  app.perf.layout = performance.now() - started;
  at.canvas = el('canvas', { cls: 'stick', 'aria-hidden': 'true', tid: 'flame-canvas' });
  at.spacer = el('div', {}, at.canvas);
  at.scroll = el('div', { cls: 'scroll', onscroll: () => soon(at) }, at.spacer);
  at.seen = 0;
  at.mirror = makeMirror({
    onfocus: () => soon(at), onblur: () => soon(at),
    onkeydown: event => { if (flameKeys(at, event)) event.stopPropagation(); },
  });
  listenToFlame(at);
  fill(host, at.mirror, at.scroll);
  relayout(at);
  scrollToStart(at);
  app.later(() => mirrorBoxes(at));
}

function listenToFlame(at) {
  at.canvas.addEventListener('mousemove', event => hoverBox(at, event));
  at.canvas.addEventListener('mouseleave', hideTip);
  at.canvas.addEventListener('click', event => clickBox(at, event));
}

// Lays the boxes out for the width that is there, and paints them.
function relayout(at) {
  if (!at.app || !at.scroll.isConnected) return;
  const fromEnd = at.scroll.scrollHeight - at.scroll.scrollTop - at.seen;
  const lay = () => {
    at.width = at.scroll.clientWidth;
    at.layout = layFlame({ ...at.trees, width: at.width, nameOf: at.app.names.raw });
    at.height = at.layout.rows.length * ROW + 2;
    at.spacer.style.setProperty('height', at.height + 'px');
  };
  lay();
  if (at.scroll.clientWidth !== at.width) lay();
  const { scrollHeight, clientHeight } = at.scroll;
  const top = scrollHeight - clientHeight - Math.max(0, fromEnd);
  if (at.app.state.flipped) at.scroll.scrollTop = top;
  search(at);
}

// Finds what the search matches, says how much it is, and paints.
function search(at) {
  if (!at.app) return;
  const { regex } = at.app.patterns.search;
  at.found = regex ? matches(at.app.profile, regex) : null;
  const hits = document.getElementById('hits');
  if (hits) fill(hits, regex ? hitsText(at.app, at.trees, at.found) : '');
  repaint(at);
}

function repaint(at) {
  const { app } = at;
  at.isDue = false;
  if (!app || !at.layout) return;
  const started = performance.now();
  const height = at.seen = at.scroll.clientHeight;
  const { state, model } = app;
  const rootName = state.inverted && state.pivot < 0
    ? 'all, by the function that allocated' : app.names.full(-1);
  paintFlame(at.canvas, at.layout, at.width, height, {
    palette: app.palette, isDiff: model.isDiff, kinds: state.kinds, found: at.found,
    selected: state.selected, fit: at.fit,
    focused: document.activeElement === at.mirror ? at.active : -1,
    rootName, lineOf: (tree, node) => lineEnd(app.profile, tree.byLine, tree.key[node]),
    valueOf: (tree, node) => boxValue(app, tree, node),
    yOf: row => topOf(at, row) - at.scroll.scrollTop,
  });
  app.perf.draw = performance.now() - started;
  app.perf.boxes = at.layout.boxes.length;
}

// Paints in the next frame, unless something else paints before.
function soon(at) {
  if (at.isDue) return;
  at.isDue = true;
  requestAnimationFrame(() => at.isDue && repaint(at));
}

// Returns the upper edge of a row in the scrolled area.
function topOf(at, row) {
  if (!at.app.state.flipped) return row * ROW;
  return Math.max(at.height, at.scroll.clientHeight) - (row + 1) * ROW;
}

function scrollToStart(at) {
  const { flipped, pivot } = at.app.state;
  if (pivot < 0 && !flipped) return;
  at.scroll.scrollTop = pivot < 0 ? at.height
    : topOf(at, at.layout.upRows) - at.scroll.clientHeight * 0.45;
  repaint(at);
}

function mirrorBoxes(at) {
  if (at.app && at.mirror.isConnected) {
    fillMirror(at.mirror, at.app, { ...at.trees, active: at.active });
  }
}

// Zooms to a node and stays on the same picture.
function zoomTo(at, node) {
  at.trees.zoom = at.active = node;
  at.app.state.zoom = pathOf(at.trees.down, node);
  at.app.saved();
  at.app.redrawTools();
  relayout(at);
  mirrorBoxes(at);
}

function boxAtPointer(at, event) {
  const area = at.canvas.getBoundingClientRect();
  const y = event.clientY - area.top + at.scroll.scrollTop;
  const fromTop = Math.floor(y / ROW);
  const whole = Math.max(at.height, at.scroll.clientHeight);
  const row = at.app.state.flipped ? Math.floor((whole - y) / ROW) : fromTop;
  return boxUnder(at.layout, event.clientX - area.left, row);
}

function hoverBox(at, event) {
  const box = boxAtPointer(at, event);
  at.canvas.style.setProperty('cursor', box ? 'pointer' : 'default');
  if (box) showTip(event, ...boxCard(at.app, box.tree, box.node));
  else hideTip();
}

function clickBox(at, event) {
  const { app } = at;
  const box = boxAtPointer(at, event);
  if (!box) return;
  at.mirror.focus({ preventScroll: true });
  const f = box.tree.func[box.node];
  if (f >= 0 && (event.shiftKey || box.part === UP)) {
    app.change({ pivot: f, selected: f, zoom: [] });
    return;
  }
  if (box.part === DOWN && app.openOther(box.tree, box.node)) return;
  if (f >= 0) app.select(f);
  if (box.part === DOWN || box.part === ABOVE) zoomTo(at, box.node);
}

function flameKeys(at, event) {
  const { app } = at;
  if (!app || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return false;
  if (event.key === 'Enter' && document.activeElement === at.mirror) {
    event.preventDefault();
    if (!app.openOther(at.trees.down, at.active)) zoomTo(at, at.active);
    return true;
  }
  const flipped = app.state.flipped ? UPSIDE_DOWN[event.key] : null;
  const direction = flipped || DIRECTIONS[event.key];
  if (!direction && event.key !== 'Home') return false;
  event.preventDefault();
  move(at, direction);
  return true;
}

function move(at, direction) {
  const { app, trees } = at;
  const children = node => childrenOf(trees.down, node, trees.key, app.names.raw);
  const next = direction ? neighbourNode(trees.down, at.active, direction, children) : trees.zoom;
  if (document.activeElement !== at.mirror) at.mirror.focus({ preventScroll: true });
  const isAbove = direction === 'up' && at.active === trees.zoom && next !== trees.zoom;
  if (isAbove) zoomTo(at, next);
  at.active = next;
  app.select(trees.down.func[next]);
  bringIntoSight(at);
  repaint(at);
  markActive(at.mirror, next);
  const share = trees.down.weight[trees.key][next] / (trees.down.weight[trees.key][0] || 1);
  app.say(`${boxName(app, trees.down, next)}, ${app.write(trees.down.after[next])}, ` +
    `${(share * 100).toFixed(1)} %`);
}

function bringIntoSight(at) {
  const box = at.layout.boxes.find(known => known.part === DOWN && known.node === at.active);
  if (!box) return;
  const y = topOf(at, box.row);
  const { scrollTop, clientHeight } = at.scroll;
  const isInSight = y >= scrollTop && y <= scrollTop + clientHeight - ROW;
  if (!isInSight) at.scroll.scrollTop = y - clientHeight / 2;
}

function flameTools(app) {
  const { state } = app;
  const invert = () => app.change({ inverted: !state.inverted, pivot: -1, zoom: [] });
  const flip = () => app.change({ flipped: !state.flipped });
  const back = path => app.change({ zoom: path });
  return [
    searchTools(app, true),
    crumbs(app, back),
    button('Inverted', state.inverted, invert, {
      title: 'From the function that allocated up to its callers (I)', tid: 'invert',
    }),
    app.profile.hasLines && button('By line', state.byLine, () => app.toggleLines(), {
      title: 'One box for each source line, as heapprof top -g lines has rows (L)', tid: 'by-line',
    }),
    button('Flip', state.flipped, flip, { title: 'Flip (F)', tid: 'flip' }),
    widthTools(app, 'Width'),
    changeTools(app),
  ];
}
