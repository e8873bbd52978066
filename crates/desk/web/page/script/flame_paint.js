// Paints the boxes of a flame graph on a canvas.

import { UI_FONT, clearedCanvas } from './canvas.js';
import { SIGNS, changeColour, changeOf, inkOn, isMoved, isTicked } from './change.js';
import { ABOVE, DOWN, ROW } from './flame_layout.js';

const DIM = 0.34;
const LEAST_TEXT = 24;
const LEAST_SIGN = 44;
const VALUE_GAP = 8;
const VALUE_ALPHA = 0.7;

// Paints what of a layout is in sight. `look` says how:
// {palette, isDiff, kinds, found, selected, focused, rootName, fit, lineOf, valueOf, yOf}.
export function paintFlame(canvas, layout, width, height, look) {
  const context = clearedCanvas(canvas, width, height);
  context.font = '12px ' + UI_FONT;
  const last = layout.rows.length - 1;
  for (let row = 0; row <= last; row++) {
    const y = look.yOf(row);
    if (y > height || y < -ROW || !layout.rows[row]) continue;
    for (const box of layout.rows[row]) paintBox(context, box, y, look);
  }
}

function paintBox(context, box, y, look) {
  const { tree, node, x, width } = box;
  const f = tree.func[node];
  const { fill, ink } = coloursOf(tree, node, look);
  const isFound = look.found && f >= 0 && look.found[f] === 1;
  if (isDim(box, f, isFound, look)) context.globalAlpha = DIM;
  context.fillStyle = fill;
  context.fillRect(x + 0.5, y + 0.5, Math.max(width - 1, 0.5), ROW - 1);
  if (isFound) frame(context, x, y, width, 1, look.palette.inks.text);
  if (width > LEAST_TEXT) {
    context.fillStyle = ink;
    paintText(context, box, f, y, look);
  }
  context.globalAlpha = 1;
  if (f >= 0 && f === look.selected) frame(context, x, y, width, 1.5, look.palette.inks.text);
  if (look.focused === node && box.part === DOWN) {
    frame(context, x, y, width, 2.5, look.palette.inks.accent);
  }
}

function coloursOf(tree, node, look) {
  const { palette } = look;
  if (!look.isDiff) return { fill: palette.of(tree.func[node]), ink: palette.inks.text };
  const colour = changeColour(tree.before[node], tree.after[node], palette.theme);
  return { fill: `rgb(${colour})`, ink: inkOn(colour) };
}

function isDim({ tree, node, part }, f, isFound, look) {
  if (part === ABOVE || look.found && !isFound) return true;
  return look.isDiff && f >= 0 && !isTicked(look.kinds, tree.before[node], tree.after[node]);
}

function paintText(context, { tree, node, x, width }, f, y, look) {
  const before = tree.before[node];
  const after = tree.after[node];
  const middle = y + ROW / 2 + 1;
  let left = x + 5;
  if (look.isDiff && width > LEAST_SIGN && isMoved(before, after)) {
    context.fillText(SIGNS[changeOf(before, after)], left, middle);
    left += 13;
  }
  const room = x + width - left - 4;
  const end = look.lineOf(tree, node);
  const name = f < 0 ? look.fit.text(context, look.rootName, room)
    : look.fit.name(context, f, room, end);
  if (!name) return;
  context.fillText(name, left, middle);
  const value = look.valueOf(tree, node);
  const wide = look.fit.width(context, name) + VALUE_GAP;
  if (name.endsWith('…' + end) || wide + look.fit.width(context, value) > room) return;
  context.globalAlpha *= VALUE_ALPHA;
  context.fillText(value, left + wide, middle);
}

function frame(context, x, y, width, thick, colour) {
  const inset = 0.5 + thick / 2;
  context.strokeStyle = colour;
  context.lineWidth = thick;
  const wide = Math.max(width - 2 * inset, 0.5);
  context.strokeRect(x + inset, y + inset, wide, ROW - 2 * inset);
}
