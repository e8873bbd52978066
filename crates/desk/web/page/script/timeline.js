// The timeline: how memory grew over the snapshots. Dragging over two moments compares them.

import { el, fill } from './dom.js';
import { bytesText, sinceText } from './format.js';
import { drawHistory } from './history_curve.js';
import { largest } from './model.js';
import { chip, emptyView } from './pieces.js';
import { seriesOf } from './series.js';
import { factTable, hideTip, showTip } from './tip.js';
import { nearestSnapshot, paintTimeline, timeScale } from './timeline_paint.js';
import { hint } from './tools.js';

const BANDS = 7;
export const RECORD_SEVERAL = [
  'heapprof record --interval 1s -- ./program', 'heapprof report DIR -o report.html',
];

// Makes the view. `at` remembers the canvas, the brush and the snapshot under the pointer.
export function makeTimelineView() {
  const at = { app: null, brush: null, hovered: -1 };
  return {
    id: 'timeline', title: 'Timeline', allowsNothing: true,
    isEmpty: app => app.profile.snapshots.length < 2 && !app.profile.head.history,
    tools: app => app.profile.snapshots.length > 1
      && hint('Drag over two points to compare them; every view follows.'),
    draw: (app, host) => drawTimeline(app, at, host),
    mark: () => paintMoments(at),
    resize: () => paintMoments(at),
    keys: event => timelineKeys(at, event),
    destroy: () => { at.app = at.paint = null; },
  };
}

function drawTimeline(app, at, host) {
  Object.assign(at, { app: null, paint: null });
  if (app.profile.snapshots.length < 2) {
    drawSingle(app, at, host);
    return;
  }
  at.app = app;
  at.series = seriesOf(app.model);
  at.top = topFunctions(at.series, app.profile.functionCount);
  at.canvas = el('canvas', {
    tid: 'timeline-canvas', tabindex: 0, role: 'slider', 'aria-label': 'Snapshot',
    'aria-valuemin': 1, 'aria-valuemax': at.series.times.length,
    'aria-valuenow': app.state.after + 1, 'aria-valuetext': snapshotText(at, app.state.after),
  });
  at.box = el('div', { cls: 'scroll' }, at.canvas);
  at.legend = el('div', { cls: 'lgd' }, bandLegend(app, at.top));
  fill(host, at.box, at.legend);
  at.paint = () => paintTimeline({
    ...at, app, width: at.box.clientWidth,
    height: at.box.clientHeight - at.legend.offsetHeight - 16,
  });
  listenToTimeline(at);
  paintMoments(at);
}

// Draws what the collector kept of a single recording, or says how to record several snapshots.
function drawSingle(app, at, host) {
  if (app.profile.head.history) {
    at.app = app;
    at.paint = drawHistory(app, host);
    paintMoments(at);
    return;
  }
  const words = 'Record several and open them together:';
  fill(host, emptyView(app, 'One snapshot has no timeline', words, RECORD_SEVERAL));
}

function paintMoments(at) {
  if (at.paint) at.paint();
}

function topFunctions(series, count) {
  const most = new Float64Array(count);
  for (const flat of series.flat) {
    for (let f = 0; f < count; f++) if (flat[f] > most[f]) most[f] = flat[f];
  }
  return largest(most, BANDS);
}

function bandLegend(app, top) {
  const one = (f, rank) => el('button', {
    cls: 'link', type: 'button', title: app.names.full(f), onclick: () => app.select(f),
  }, chip(app.palette.band(rank)), el('bdi', {}, app.names.nice(f, 34)));
  const rest = el('span', { cls: 'where' }, chip(app.palette.inks.rest), 'everything else');
  return [top.map(one), rest];
}

function listenToTimeline(at) {
  const indexAt = event => {
    const x = event.clientX - at.canvas.getBoundingClientRect().left;
    return nearestSnapshot(at.series.times, timeScale(at.series.times, at.box.clientWidth), x);
  };
  at.canvas.addEventListener('pointermove', event => {
    at.hovered = indexAt(event);
    if (at.brush) at.brush.to = at.hovered;
    paintMoments(at);
    showTip(event, ...snapshotCard(at, at.hovered));
  });
  at.canvas.addEventListener('pointerleave', () => {
    at.hovered = -1;
    hideTip();
    paintMoments(at);
  });
  at.canvas.addEventListener('pointerdown', event => {
    const index = indexAt(event);
    at.brush = { from: index, to: index };
    at.canvas.setPointerCapture?.(event.pointerId);
  });
  at.canvas.addEventListener('pointerup', () => endBrush(at));
}

// A drag compares its two ends; a click shows one snapshot.
function endBrush(at) {
  if (!at.brush) return;
  const { from, to } = at.brush;
  at.brush = null;
  const before = from === to ? -1 : Math.min(from, to);
  at.app.change({ before, after: Math.max(from, to) });
}

function timelineKeys(at, event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step || !at.app || !at.series || at.app.profile.snapshots.length < 2) return false;
  event.preventDefault();
  const { app } = at;
  const last = at.series.times.length - 1;
  const { before, after } = app.state;
  const next = Math.max(0, Math.min(last, after + step));
  const base = event.shiftKey ? before < 0 ? after : before : -1;
  app.change({ after: next, before: base === next ? -1 : base });
  document.querySelector('[data-testid=timeline-canvas]')?.focus();
  app.say(snapshotText(at, next));
  return true;
}

function snapshotText(at, index) {
  const amount = at.app.write(at.series.total[index]);
  return `snapshot ${index + 1} at ${sinceText(at.series.times[index])}, ${amount}`;
}

function snapshotCard(at, index) {
  const { app, series, top } = at;
  const { rss } = app.profile.snapshots[index];
  return [
    el('div', { cls: 'fn' }, `${sinceText(series.times[index])} · snapshot ${index + 1}`),
    factTable([
      [app.familyLabel(app.model.question.measure), app.write(series.total[index])],
      rss && ['RSS', bytesText(rss)],
      ...top.map(f => [el('bdi', {}, app.names.nice(f)), app.write(series.flat[index][f])]),
    ]),
  ];
}
