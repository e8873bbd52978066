// The treemap: areas are what functions allocated themselves, grouped by module.

import { makeFitter } from './canvas.js';
import { matches } from './call_tree.js';
import { button, byId, el, fill } from './dom.js';
import { bytesText, shareText, signed } from './format.js';
import { meanSize } from './measures.js';
import { emptyView, nameOn, placeOf } from './pieces.js';
import { hideTip, factTable, showTip } from './tip.js';
import { hint, searchTools, widthTools } from './tools.js';
import { modulesOf, paintTreemap } from './treemap_paint.js';

// Makes the view. `at` remembers the canvas and the tiles on it.
export function makeTreemapView() {
  const at = { app: null, tiles: [] };
  return {
    id: 'map', title: 'Treemap', hasSearch: true, hasWidth: true,
    tools: app => treemapTools(app),
    draw: (app, host) => drawTreemap(app, at, host),
    mark: () => paintTiles(at),
    search: () => paintTiles(at),
    resize: () => paintTiles(at),
    keys: () => false,
    destroy: () => { at.app = null; },
  };
}

function drawTreemap(app, at, host) {
  at.app = app;
  at.fit = makeFitter(app.names);
  at.modules = modulesOf(app);
  if (!at.modules.length) {
    at.app = null;
    fill(host, emptyView(app, 'Nothing to show', "No function's own allocations pass the filters."));
    return;
  }
  at.canvas = el('canvas', { tid: 'treemap-canvas' });
  at.box = el('div', {
    cls: 'scroll', role: 'img', tid: 'treemap',
    'aria-label': 'Treemap of modules and functions; the table view lists the same',
  }, at.canvas);
  at.canvas.addEventListener('mousemove', event => hoverTile(at, event));
  at.canvas.addEventListener('mouseleave', hideTip);
  at.canvas.addEventListener('click', event => clickTile(at, event));
  fill(host, at.box);
  paintTiles(at);
}

function paintTiles(at) {
  const { app } = at;
  if (!app) return;
  const { regex } = app.patterns.search;
  const found = regex ? matches(app.profile, regex) : null;
  at.tiles = paintTreemap(at.canvas, {
    ...at, app, found, width: at.box.clientWidth, height: at.box.clientHeight,
  });
  const hits = byId('hits');
  if (hits) fill(hits, found ? foundText(app, found) : '');
}

// Says how much the functions that a search found hold themselves.
function foundText(app, found) {
  const { flat, isDiff } = app.model;
  const sumOf = values => values.reduce((sum, value, f) => found[f] ? sum + value : sum, 0);
  const after = sumOf(flat.after);
  if (!after && !sumOf(flat.before)) return 'no match';
  const amount = isDiff ? signed(app.write, after - sumOf(flat.before)) : app.write(after);
  return `${shareText(after / app.whole())} · ${amount}`;
}

function tileAt(at, event) {
  const area = at.canvas.getBoundingClientRect();
  const x = event.clientX - area.left;
  const y = event.clientY - area.top;
  return at.tiles.findLast(tile =>
    x >= tile.x && x < tile.x + tile.width && y >= tile.y && y < tile.y + tile.height);
}

function hoverTile(at, event) {
  const tile = tileAt(at, event);
  at.canvas.style.setProperty('cursor', tile ? 'pointer' : 'default');
  if (tile) showTip(event, ...tileCard(at.app, tile));
  else hideTip();
}

function clickTile(at, event) {
  const { app } = at;
  const tile = tileAt(at, event);
  if (!tile) return;
  if (tile.f >= 0) app.select(tile.f);
  else app.change({ module: app.state.module === tile.module ? -1 : tile.module });
}

function tileCard(app, { f, module, item }) {
  if (f < 0) {
    const amount = `${app.write(item.value)} · ${shareText(item.value / app.whole())}`;
    return [el('div', { cls: 'fn' }, el('bdi', {}, app.moduleText(module))),
      el('div', { cls: 'where' }, amount)];
  }
  const { flat, isDiff, question } = app.model;
  const objects = flat.objects[f];
  const mean = objects && meanSize(question.measure, flat.after[f], objects);
  const share = shareText(flat.after[f] / app.whole());
  return [el('div', { cls: 'fn' }, nameOn(app, f)), placeOf(app, f), factTable([
    ['own (flat)', `${app.write(flat.after[f])} · ${share}`],
    isDiff && ['change', signed(app.write, flat.after[f] - flat.before[f])],
    mean && ['mean size', bytesText(mean)],
  ])];
}

function treemapTools(app) {
  const { module } = app.state;
  const close = () => app.change({ module: -1 });
  return [
    searchTools(app, true),
    module >= 0 && button('✕ ' + app.moduleText(module), null, close),
    hint('Area is what a function allocated itself (flat). A click on a module’s title opens it.'),
    widthTools(app, 'Area'),
  ];
}
