// Paints the timeline of several snapshots: the total with RSS, and the largest functions stacked.

import { UI_FONT, clearedCanvas } from './canvas.js';
import {
  areaLine, line, markPoint, pointsOf, residentLabel, residentLine, timeAxis, valueGrid,
} from './chart.js';
import { bytesText, sinceText } from './format.js';

const LEFT = 72;
const RIGHT = 22;

// Returns the scale from snapshots to pixels, also for the pointer.
export function timeScale(times, width) {
  const left = LEFT;
  const right = width - RIGHT;
  const end = times[times.length - 1];
  const wide = right - left;
  const last = Math.max(1, times.length - 1);
  const xOf = time => left + wide * time / end;
  const xAt = end > 0 ? i => xOf(times[i]) : i => left + wide * i / last;
  return { left, right, end, xOf, xAt };
}

// Returns the snapshot nearest to a place.
export function nearestSnapshot(times, scale, x) {
  let best = 0;
  for (let i = 1; i < times.length; i++) {
    if (Math.abs(scale.xAt(i) - x) < Math.abs(scale.xAt(best) - x)) best = i;
  }
  return best;
}

// Paints everything. `look` is {app, series, top, brush, hovered, canvas, width, height}.
export function paintTimeline(look) {
  const { app, series, width, height } = look;
  const context = clearedCanvas(look.canvas, width, height);
  const scale = timeScale(series.times, width);
  const split = Math.round(height * 0.38);
  const frame = { ...scale, inks: app.palette.inks, write: app.write, isBytes: isBytes(app) };
  const charts = [{ top: 50, bottom: split }, { top: split + 50, bottom: height - 24 }];
  const marks = marksOf(look);
  paintTotals(context, { ...look, marked: marks.lines }, { ...frame, ...charts[0] });
  paintBands(context, look, { ...frame, ...charts[1] });
  if (scale.end > 0) timeAxis(context, { ...frame, y: height - 9 });
  paintMarks(context, look, marks, { ...frame, charts });
}

function isBytes(app) {
  return app.model.question.measure.unit === 'bytes';
}

function paintTotals(context, { app, series, marked }, frame) {
  const { inks, xAt } = frame;
  const resident = isBytes(app) ? app.profile.snapshots.map(({ rss }) => rss) : [];
  const hasResident = resident.some(value => value != null);
  const label = app.familyLabel(app.model.question.measure);
  const title = label + (hasResident ? ' and RSS' : isBytes(app) ? ' (RSS not recorded)' : '');
  const peak = peakOf(app, series);
  const values = [...series.total, ...resident.map(value => value || 0), peak.value];
  const most = 1.06 * Math.max(...values, 1);
  const { yOf, room } = valueGrid(context, { ...frame, most, title: title + peak.title });
  areaLine(context, series.total, xAt, yOf, inks);
  if (hasResident) residentLine(context, resident, xAt, yOf, inks);
  for (const values of [series.total, resident]) room.avoid(pointsOf(values, xAt, yOf));
  for (const i of marked) room.avoid([[xAt(i), frame.top], [xAt(i), frame.bottom]]);
  const x = peak.t == null ? xAt(peak.snapshot)
    : frame.xOf(Math.min(Math.max(peak.t, 0), frame.end));
  markPoint(context, x, yOf(peak.value), peak.words, { room, inks });
  const words = value => 'RSS ' + bytesText(value);
  residentLabel(context, resident, xAt, yOf, words, { room, inks });
}

// Returns what to mark: the peak that the snapshots name, or the largest of them. Filters, objects
// and allocations have no peak of their own.
function peakOf(app, series) {
  const snapshot = series.total.indexOf(Math.max(...series.total));
  const value = series.total[snapshot];
  const at = sinceText(series.times[snapshot]);
  const { focus, ignore } = app.state;
  const named = app.profile.head.peak;
  const isHeap = app.model.question.measure.name === 'inuse_space' && !focus && !ignore;
  if (!named || !isHeap) return { snapshot, value, title: '', words: largestText(app, value, at) };
  if (named.bytes <= value) {
    return { snapshot, value, title: '', words: `peak ${app.write(value)} at ${at}` };
  }
  const text = `peak ${app.write(named.bytes)}`;
  if (named.t == null || !series.times.at(-1)) {
    const title = ` (${text}, at an unknown time)`;
    return { snapshot, value, title, words: largestText(app, value, at) };
  }
  const when = named.t < 0 ? 'before the first snapshot' : `at ${sinceText(named.t)}`;
  return { snapshot, value: named.bytes, t: named.t, title: '', words: `${text} ${when}` };
}

function largestText(app, value, at) {
  return `largest ${app.write(value)} at ${at}`;
}

// Stacks the largest functions on everything else.
function paintBands(context, { app, series, top }, frame) {
  const { inks, xAt } = frame;
  const own = app.state.own ? ' (own code)' : '';
  const title = `By function that allocated${own}, the ${top.length} largest`;
  const most = 1.06 * Math.max(...series.total, 1);
  const { yOf } = valueGrid(context, { ...frame, most, title });
  const base = series.total.map(() => 0);
  const band = (values, colour, f) => {
    context.beginPath();
    values.forEach((value, i) => context.lineTo(xAt(i), yOf(base[i] + value)));
    for (let i = values.length - 1; i >= 0; i--) context.lineTo(xAt(i), yOf(base[i]));
    const isOther = top.includes(app.state.selected) && f !== app.state.selected;
    context.globalAlpha = isOther ? 0.35 : 1;
    context.fillStyle = colour;
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = inks.surface;
    context.lineWidth = 1;
    context.stroke();
    values.forEach((value, i) => { base[i] += value; });
  };
  const valuesOf = f => series.flat.map(flat => flat[f]);
  const rest = series.total.map((total, i) =>
    Math.max(0, total - top.reduce((sum, f) => sum + series.flat[i][f], 0)));
  band(rest, inks.rest, -1);
  for (let rank = top.length - 1; rank >= 0; rank--) {
    band(valuesOf(top[rank]), app.palette.band(rank), top[rank]);
  }
}

// Returns what is compared or shown: {a, b, isPair, lines}, where `lines` has the snapshots that
// get an upright line.
function marksOf({ app, brush }) {
  const { state } = app;
  const a = brush ? Math.min(brush.from, brush.to) : state.before;
  const b = brush ? Math.max(brush.from, brush.to) : state.after;
  const isPair = a >= 0 && a !== b;
  return { a, b, isPair, lines: isPair ? [a, b] : [b] };
}

// Marks what is compared or shown, and the snapshot under the pointer. The lines are in the charts
// only, so that they go through no title.
function paintMarks(context, { hovered }, { a, b, isPair }, frame) {
  const { charts, inks, xAt } = frame;
  if (isPair) {
    context.fillStyle = inks.brush;
    for (const { top, bottom } of charts) {
      context.fillRect(xAt(a), top, xAt(b) - xAt(a), bottom - top);
    }
  }
  const end = isPair ? flag(context, xAt(a), 'before', 1, 0, frame) : 0;
  if (isPair) flag(context, xAt(b), 'after', 0, end + 2, frame);
  else flag(context, xAt(b), 'shown', 0.5, 0, frame);
  if (hovered >= 0) {
    context.strokeStyle = inks.muted;
    context.setLineDash([2, 2]);
    upright(context, xAt(hovered), charts);
    context.setLineDash([]);
  }
}

function upright(context, x, charts) {
  for (const { top, bottom } of charts) line(context, x, top, x, bottom);
}

// Draws an upright line with words above it, of which a share is left of the line. They begin after
// `least`. It returns where they end.
function flag(context, x, words, share, least, { left, right, inks, charts }) {
  context.strokeStyle = inks.text;
  context.lineWidth = 1.25;
  upright(context, x + 0.5, charts);
  context.font = '11.5px ' + UI_FONT;
  const width = context.measureText(words).width + 10;
  const at = Math.max(Math.min(Math.max(x - width * share, left), right - width), least);
  context.fillStyle = inks.text;
  context.fillRect(at, 3, width, 16);
  context.fillStyle = inks.flag;
  context.textAlign = 'left';
  context.fillText(words, at + 5, 11.5);
  return at + width;
}
