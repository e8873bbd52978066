// Lays the treemap out and paints it.

import { UI_FONT, clearedCanvas } from './canvas.js';
import { SIGNS, changeColour, changeOf, inkOn } from './change.js';
import { shareText, signed } from './format.js';
import { squarified } from './squarify.js';

const HEAD = 20;
const LEAST_TILE = 1;
const DIMMED_TILE = 0.25;

// Groups functions by module: [{module, value, functions: [{f, value}]}], largest first.
export function modulesOf(app) {
  const { profile, state } = app;
  const value = valueFor(app);
  const groups = new Map();
  for (let f = 0; f < profile.functionCount; f++) {
    const amount = value(f);
    const module = profile.moduleOf[f];
    if (amount <= 0 || state.module >= 0 && module !== state.module) continue;
    let group = groups.get(module);
    if (!group) groups.set(module, group = { module, value: 0, functions: [] });
    group.value += amount;
    group.functions.push({ f, value: amount });
  }
  const largestFirst = (a, b) => b.value - a.value;
  for (const group of groups.values()) group.functions.sort(largestFirst);
  return [...groups.values()].sort(largestFirst);
}

// Paints modules and their functions, dimmed if a search did not find them. Returns the tiles for
// finding what is under the pointer. `look` is {app, modules, fit, found, width, height}.
export function paintTreemap(canvas, look) {
  const { app, modules, fit, found, width, height } = look;
  const context = clearedCanvas(canvas, width, height);
  const tiles = [];
  for (const box of squarified(modules, 6, 6, width - 12, height - 12)) {
    tiles.push({ ...box, module: box.item.module, f: -1 });
    const head = paintModule(context, app, box, fit);
    const inner = squarified(box.item.functions, box.x + 3, box.y + head + 1,
      box.width - 6, box.height - head - 4);
    for (const tile of inner) {
      if (tile.width < LEAST_TILE || tile.height < LEAST_TILE) continue;
      tiles.push({ ...tile, module: box.item.module, f: tile.item.f });
      context.globalAlpha = found && !found[tile.item.f] ? DIMMED_TILE : 1;
      paintFunction(context, app, tile, fit);
      context.globalAlpha = 1;
    }
  }
  return tiles;
}

// In a comparison, areas are what the width choice says; else flat values.
function valueFor(app) {
  const { flat, isDiff } = app.model;
  const { width } = app.state;
  if (isDiff && width === 'delta') return f => Math.abs(flat.after[f] - flat.before[f]);
  return isDiff && width === 'before' ? f => flat.before[f] : f => flat.after[f];
}

function paintModule(context, app, { x, y, width, height, item }, fit) {
  const { inks } = app.palette;
  context.fillStyle = inks.inset;
  context.fillRect(x + 1, y + 1, width - 2, height - 2);
  if (height <= 40 || width <= 60) return 2;
  context.font = '600 12px ' + UI_FONT;
  context.fillStyle = inks.text;
  const words = [app.moduleText(item.module), app.write(item.value),
    shareText(item.value / app.whole())];
  let text = words.join('  ');
  for (let i = 2; i > 0 && context.measureText(text).width > width - 12; i--) {
    text = words.slice(0, i).join('  ');
  }
  context.fillText(fit.text(context, text, width - 12), x + 7, y + 12);
  return HEAD;
}

function paintFunction(context, app, { x, y, width, height, item }, fit) {
  const { palette, model, state } = app;
  const { f } = item;
  let ink = palette.inks.text;
  if (model.isDiff) {
    const colour = changeColour(model.flat.before[f], model.flat.after[f], palette.theme);
    context.fillStyle = `rgb(${colour})`;
    ink = inkOn(colour);
  } else {
    context.fillStyle = palette.of(f);
  }
  context.fillRect(x + 0.75, y + 0.75, Math.max(width - 1.5, 0.5), Math.max(height - 1.5, 0.5));
  if (f === state.selected && width > 5 && height > 5) {
    context.strokeStyle = palette.inks.text;
    context.lineWidth = 2;
    context.strokeRect(x + 2, y + 2, width - 4, height - 4);
  }
  if (width > 36 && height > 17) paintWords(context, app, { x, y, width, height, item }, fit, ink);
}

function paintWords(context, app, { x, y, width, height, item }, fit, ink) {
  const { flat, isDiff } = app.model;
  const { f } = item;
  context.font = '12px ' + UI_FONT;
  context.fillStyle = ink;
  const sign = isDiff ? SIGNS[changeOf(flat.before[f], flat.after[f])] : '';
  const name = fit.name(context, f, width - 12 - (sign ? 14 : 0));
  if (!name) return;
  context.fillText((sign ? sign + ' ' : '') + name, x + 6, y + 11);
  if (height <= 34 || width <= 60) return;
  const amount = isDiff ? signed(app.write, flat.after[f] - flat.before[f]) : app.write(item.value);
  context.fillText(amount, x + 6, y + 26);
}
