// Draws the frame of a chart over time: grid, labels and the axis of time.

import { UI_FONT } from './canvas.js';
import { makeLabelRoom } from './chart_labels.js';
import { sinceText } from './format.js';

const LABEL_FONT = '11.5px ' + UI_FONT;
const TIME_STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 12e5, 18e5,
  36e5, 72e5, 108e5, 216e5, 432e5, 864e5,
];

// Draws the grid of values from 0 to `most`. Returns {yOf, room}: a function from a value to its
// height, and the room for words in the chart.
export function valueGrid(context, frame) {
  const { left, right, top, bottom, most, title, write, isBytes, inks } = frame;
  const room = makeLabelRoom(frame);
  const yOf = value => bottom - (bottom - top) * value / most;
  context.fillStyle = inks.text;
  context.font = '600 12.5px ' + UI_FONT;
  context.textAlign = 'left';
  context.fillText(title, left, top - 13);
  context.font = LABEL_FONT;
  const step = valueStep(most, isBytes);
  for (let value = 0; value <= most * 1.001; value += step) {
    const y = Math.round(yOf(value)) + 0.5;
    context.strokeStyle = inks.line;
    context.lineWidth = 1;
    line(context, left, y, right, y);
    room.avoid([[left, y], [right, y]]);
    context.fillStyle = inks.muted;
    context.textAlign = 'right';
    context.fillText(write(value).replace(/\.0+(?= )/, ''), left - 8, y);
  }
  return { yOf, room };
}

// Draws the labels of the axis of time at round times.
export function timeAxis(context, { left, right, y, end, xOf, inks }) {
  const wanted = end / Math.max(2, (right - left) / 110);
  const step = TIME_STEPS.find(known => known >= wanted) || Math.ceil(wanted / 864e5) * 864e5;
  context.fillStyle = inks.muted;
  context.font = LABEL_FONT;
  context.textAlign = 'center';
  for (let time = 0; time <= end; time += step) {
    context.fillText(time === 0 ? '0' : stepText(time, step), xOf(time), y);
  }
}

export function line(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}

// Draws a line through values; where a value is null, it has a gap.
export function valueLine(context, values, xAt, yOf) {
  let isOpen = false;
  context.beginPath();
  values.forEach((value, i) => {
    if (value == null) isOpen = false;
    else if (isOpen) context.lineTo(xAt(i), yOf(value));
    else {
      context.moveTo(xAt(i), yOf(value));
      isOpen = true;
    }
  });
}

// Draws a value's line and the light area under it.
export function areaLine(context, values, xAt, yOf, inks) {
  valueLine(context, values, xAt, yOf);
  context.lineTo(xAt(values.length - 1), yOf(0));
  context.lineTo(xAt(0), yOf(0));
  context.fillStyle = inks.area;
  context.fill();
  valueLine(context, values, xAt, yOf);
  context.strokeStyle = inks.accent;
  context.lineWidth = 2;
  context.stroke();
}

// Draws the resident set, dashed. A value that stands alone is a dot.
export function residentLine(context, values, xAt, yOf, inks) {
  valueLine(context, values, xAt, yOf);
  context.strokeStyle = inks.rss;
  context.setLineDash([5, 3]);
  context.lineWidth = 1.6;
  context.stroke();
  context.setLineDash([]);
  const isThere = i => values[i] != null;
  values.forEach((value, i) => {
    if (isThere(i) && !isThere(i - 1) && !isThere(i + 1)) {
      dot(context, xAt(i), yOf(value), 2.5, inks.rss);
    }
  });
}

// Writes the last value of the resident set at its line.
export function residentLabel(context, values, xAt, yOf, words, { room, inks }) {
  const last = values.findLastIndex(value => value != null);
  if (last < 0) return;
  context.font = LABEL_FONT;
  context.fillStyle = inks.rss;
  room.write(context, words(values[last]), xAt(last), yOf(values[last]));
}

// Marks a point with a dot and words beside it.
export function markPoint(context, x, y, words, { room, inks }) {
  dot(context, x, y, 4, inks.more);
  room.avoidMark(x, y, 5);
  context.font = '600 11.5px ' + UI_FONT;
  room.write(context, words, x, y);
  context.font = LABEL_FONT;
}

// Returns the points of values that are known, for the room of words.
export function pointsOf(values, xAt, yOf) {
  return values.map((value, i) => value == null ? null : [xAt(i), yOf(value)]).filter(Boolean);
}

function dot(context, x, y, radius, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, radius, 0, 7);
  context.fill();
}

function valueStep(most, isBytes) {
  const wanted = Math.max(most, 1) / 3;
  if (isBytes) {
    const step = 2 ** Math.floor(Math.log2(wanted));
    return most / step > 5 ? step * 2 : step;
  }
  const ten = 10 ** Math.floor(Math.log10(wanted));
  return Math.max(1, wanted / ten > 5 ? 5 * ten : wanted / ten > 2 ? 2 * ten : ten);
}

function stepText(time, step) {
  if (step >= 1000 && time < 12e4) return time / 1000 + ' s';
  return sinceText(time).replace('.0 ', ' ');
}
