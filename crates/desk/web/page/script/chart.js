// Draws the frame of a chart over time: grid, labels and the axis of time.

import { UI_FONT } from './canvas.js';
import { sinceText } from './format.js';

const LABEL_FONT = '11.5px ' + UI_FONT;
const TIME_STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 12e5, 18e5,
  36e5, 72e5, 108e5, 216e5, 432e5, 864e5,
];

// Draws the grid of values from 0 to `most`. Returns a function from a value to its height.
export function valueGrid(context, frame) {
  const { left, right, top, bottom, most, title, write, isBytes, inks } = frame;
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
    context.fillStyle = inks.muted;
    context.textAlign = 'right';
    context.fillText(write(value).replace(/\.0+(?= )/, ''), left - 8, y);
  }
  return yOf;
}

// Draws the labels of the axis of time at round times, without one that would overlap the end.
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

// Draws the resident set, dashed, with its last value.
export function residentLine(context, values, xAt, yOf, words, inks) {
  const last = values.findLastIndex(value => value != null);
  if (last < 0) return;
  valueLine(context, values, xAt, yOf);
  context.strokeStyle = inks.rss;
  context.setLineDash([5, 3]);
  context.lineWidth = 1.6;
  context.stroke();
  context.setLineDash([]);
  context.fillStyle = inks.rss;
  context.textAlign = 'right';
  context.fillText(words(values[last]), xAt(last), yOf(values[last]) - 10);
}

// Marks a point with a dot and words beside it.
export function markPoint(context, x, y, words, { right, inks }) {
  context.fillStyle = inks.more;
  context.beginPath();
  context.arc(x, y, 4, 0, 7);
  context.fill();
  context.font = '600 11.5px ' + UI_FONT;
  const isLeft = x + context.measureText(words).width < right;
  context.textAlign = isLeft ? 'left' : 'right';
  context.strokeStyle = inks.surface;
  context.lineWidth = 4;
  context.lineJoin = 'round';
  const at = x + (isLeft ? 9 : -9);
  context.strokeText(words, at, y - 9);
  context.fillText(words, at, y - 9);
  context.font = LABEL_FONT;
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
