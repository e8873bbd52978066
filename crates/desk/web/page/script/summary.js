// The summary: tiles with the largest functions by each measure, and sizes of allocations.

import { button, el, fill } from './dom.js';
import { shareText, valueText } from './format.js';
import { histogram, sizeCharts } from './histogram.js';
import { measureOf } from './measures.js';
import { flatValues, largest } from './model.js';
import { functionRow, plainRow } from './pieces.js';
import { visibleText } from './text.js';
import { hint } from './tools.js';

// What a heap profile is asked first: [title, family, kind, what to say if it is not there].
const HEAP_TILES = [
  ['Held now', 'inuse', 'space'],
  ['At the peak', 'peak', 'space'],
  ['Allocated in all', 'alloc', 'space'],
  ['Temporary', 'temporary', 'space',
    'This profile does not have it. heapprof record --exact counts allocations that are freed ' +
    'at once.'],
  ['Most objects', 'inuse', 'objects'],
];
const TOP = 5;

export function makeSummaryView() {
  return {
    id: 'sizes', title: 'Summary',
    tools: () => hint('The five largest by each measure, filtered as above.'),
    draw: drawSummary,
    keys: () => false,
    destroy() {},
  };
}

function drawSummary(app, host) {
  const { isHeap, measures } = app.profile;
  const tiles = isHeap ? HEAP_TILES.map(tile => heapTile(app, tile))
    : measures.all.slice(0, 6).map(measure => measureTile(app, measure.name, measure));
  const cards = [tiles, isHeap && residentCard(app), isHeap && sizesCard(app)];
  fill(host, el('div', { cls: 'sum', tid: 'summary' }, cards));
}

function heapTile(app, [title, family, kind, missing]) {
  const measure = measureOf(app.profile.measures, family, kind);
  if (measure.family === family && measure.kind === kind) return measureTile(app, title, measure);
  if (family === 'peak') return null;
  return el('section', { cls: 'card', tid: `tile-${family}-${kind}` },
    el('h2', {}, title), el('p', { cls: 'where' }, missing || 'Not in this profile.'));
}

function measureTile(app, title, measure) {
  const { model } = app;
  const flat = flatValues(model, model.question.after, measure);
  const total = flat.reduce((sum, value) => sum + value, 0);
  const write = value => valueText(measure.unit, value);
  const row = f => functionRow(app, f, {
    value: flat[f], text: write(flat[f]), note: shareText(flat[f] / total), share: flat[f] / total,
  });
  const unit = measure.kind === 'objects' ? ' objects' : '';
  const tid = `tile-${measure.family}-${measure.kind}`;
  return el('section', { cls: 'card', tid, 'data-total': total },
    el('h2', {}, title, measure.family === 'peak' && peakButton(app)),
    el('div', { cls: 'tot' }, write(total) + unit),
    changeLine(app, measure, total, write),
    largest(flat, TOP).map(row));
}

// Makes the button that shows the peak in all views, and then what is held now again.
function peakButton(app) {
  const isShown = app.state.family === 'peak';
  const toggle = () => {
    const { family, kind } = measureOf(app.profile.measures, isShown ? 'inuse' : 'peak', 'space');
    app.change({ family, kind, zoom: [] });
  };
  return button('Show the peak', isShown, toggle, {
    tid: 'show-peak', title: 'All views show what was held when the heap was largest',
  });
}

// Shows what was resident at the peak, by the kinds of mappings that the kernel tells apart; null if
// the recording does not have it. heapprof why -- COMMAND records it.
function residentCard(app) {
  const parts = app.profile.snapshots.at(-1).peakParts;
  if (!parts.length) return null;
  const total = parts.reduce((sum, part) => sum + part.bytes, 0);
  const byKind = new Map();
  for (const part of parts) {
    const all = byKind.get(part.kind) || { kind: part.kind, bytes: 0, largest: null };
    all.bytes += part.bytes;
    if (part.name && !(all.largest?.bytes > part.bytes)) all.largest = part;
    byKind.set(part.kind, all);
  }
  const row = ({ kind, bytes, largest: file }) => plainRow(kind, {
    value: bytes, text: valueText('bytes', bytes), note: shareText(bytes / total),
    share: bytes / total, code: file && visibleText(file.name.split('/').at(-1)),
  });
  const rows = [...byKind.values()].sort((a, b) => b.bytes - a.bytes).map(row);
  return el('section', { cls: 'card', tid: 'resident', 'data-total': total },
    el('h2', {}, 'Resident at the peak'),
    el('div', { cls: 'tot' }, valueText('bytes', total)),
    rows);
}

// In a comparison, a tile also says what it was before.
function changeLine(app, measure, total, write) {
  const { model } = app;
  if (!model.isDiff) return null;
  const before = flatValues(model, model.question.before, measure)
    .reduce((sum, value) => sum + value, 0);
  const change = total - before;
  const words = change === 0 ? 'as before'
    : `${change > 0 ? '▲ +' : '▼ '}${write(change)} since ${write(before)}`;
  const tone = change > 0 ? 'up' : change < 0 ? 'dn' : '';
  return el('div', { cls: 'change ' + tone, 'data-delta': change }, words);
}

function sizesCard(app) {
  const sizes = sizeCharts(app);
  const { measure } = app.model.question;
  const ofWhat = app.profile.head.sizes ? '' : ', ' + app.familyLabel(measure).toLowerCase();
  return el('section', { cls: 'card wide', tid: 'histogram' },
    el('h2', {}, 'Allocation sizes' + ofWhat),
    el('p', { cls: 'where' }, sizes ? sizes.note
      : 'This type does not have both bytes and objects, so the sizes are not known.'),
    sizes && el('div', { cls: 'two' }, sizes.charts.map(histogram)));
}
