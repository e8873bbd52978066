// The panel beside the view. With nothing selected it says where the memory is, or what changed.

import { changeOf } from './change.js';
import { byId, el, fill } from './dom.js';
import { bytesText, shareText, signed } from './format.js';
import { largest } from './model.js';
import { drawFunction } from './panel_function.js';
import { chip, functionRow, listHead } from './pieces.js';
import { totalOf } from './profile.js';
import { recordedText, smallestGrowth } from './sampling.js';

const FUNCTIONS = 9;
const MODULES = 7;
const GREW = 7;
const SHRANK = 5;
const MORE_BAR = 'color-mix(in srgb, var(--upf) 26%, transparent)';
const LESS_BAR = 'color-mix(in srgb, var(--dnf) 26%, transparent)';

// Fills the panel for the function that is selected, or for the whole profile.
export function drawPanel(app) {
  const side = byId('side');
  if (app.state.selected >= 0) fill(side, drawFunction(app, app.state.selected));
  else fill(side, app.model.isDiff ? whatChanged(app) : whereItIs(app));
}

// Says in sentences how the numbers came about.
export function aboutNumbers(app) {
  return recordedText(app) + residentText(app);
}

function residentText(app) {
  const { profile, model } = app;
  const inuse = profile.measures.all.find(measure => measure.name === 'inuse_space');
  if (!inuse || !profile.isHeap) return '';
  const { rss } = profile.snapshots[model.question.after];
  if (!rss) return ' RSS was not recorded; the process is larger than its heap.';
  const share = totalOf(profile, model.question.after, inuse.index) / rss;
  return ` Heap in use is ${shareText(share)} of RSS (${bytesText(rss)}); the rest is code, ` +
    'stacks, allocator slack and pages not given back.';
}

function whereItIs(app) {
  const { model } = app;
  const row = f => {
    const value = model.flat.after[f];
    const share = value / app.whole();
    return functionRow(app, f, { value, text: app.write(value), note: shareText(share), share });
  };
  return [
    el('h2', {}, 'Where it is'),
    el('p', { cls: 'where' }, 'The functions whose own ' +
      `${app.profile.isHeap ? 'allocations hold the most' : 'values are largest'}. Click one, ` +
      'here or in any view, for its callers, callees and lines.'),
    listHead('Functions', 'flat'), rowsOrNothing(largest(model.flat.after, FUNCTIONS).map(row)),
    listHead('Modules', 'flat'), rowsOrNothing(moduleRows(app)),
    el('h3', {}, 'About the numbers'), el('p', { cls: 'where', tid: 'about' }, aboutNumbers(app)),
  ];
}

function moduleRows(app) {
  const { model, profile } = app;
  const held = new Float64Array(profile.moduleName.length);
  const sample = new Map();
  for (let f = 0; f < profile.functionCount; f++) {
    held[profile.moduleOf[f]] += model.flat.after[f];
    if (!sample.has(profile.moduleOf[f])) sample.set(profile.moduleOf[f], f);
  }
  return largest(held, MODULES).map(m => {
    const share = held[m] / app.whole();
    const open = () => app.change({ module: m, view: 'map' });
    const bar = { '--w': (100 * share).toFixed(2) + '%' };
    return el('button', { cls: 'row', css: bar, type: 'button', onclick: open },
      el('span', { cls: 'n' }, chip(app.palette.of(sample.get(m))),
        el('bdi', {}, app.moduleText(m))),
      el('span', { cls: 'v' }, app.write(held[m]), el('small', {}, shareText(share))));
  });
}

// Says that nothing changed, or that the totals do not differ by more than two samplings may.
function unchangedText(app, sum, kinds) {
  const growth = smallestGrowth(app);
  const isNothing = sum === 0 && !kinds.new && !kinds.grown && !kinds.shrunk && !kinds.gone;
  if (!growth) return isNothing ? ' Nothing changed.' : '';
  if (isNothing) return ' No change is larger than the sampling error.';
  const isNoise = Math.abs(sum) < Math.max(growth.row, growth.total);
  return isNoise ? ' Sampling cannot tell the totals apart.' : '';
}

function whatChanged(app) {
  const { flat, total } = app.model;
  const change = flat.after.map((value, f) => value - flat.before[f]);
  const most = change.reduce((sum, value) => Math.max(sum, Math.abs(value)), 1);
  const row = f => functionRow(app, f, {
    value: change[f], text: `${change[f] > 0 ? '▲' : '▼'} ${signed(app.write, change[f])}`,
    note: growthNote(flat.before[f], change[f]), share: change[f] / most,
    colour: change[f] > 0 ? MORE_BAR : LESS_BAR,
  });
  const list = (values, count) => rowsOrNothing(largest(values, count).map(row));
  const sum = total.after - total.before;
  const sign = sum > 0 ? '▲ ' : sum < 0 ? '▼ ' : '';
  const share = total.before ? ` (${signed(shareText, sum / Math.abs(total.before))})` : '';
  const kinds = countKinds(flat);
  return [
    el('h2', {}, 'What changed'),
    el('p', { cls: 'where', tid: 'change' },
      `${app.write(total.before)} → ${app.write(total.after)}, `,
      el('b', { cls: sum > 0 ? 'up' : sum < 0 ? 'dn' : null },
        sign + signed(app.write, sum) + share),
      `. Functions: ${kinds.new} new, ${kinds.grown} grown, ${kinds.shrunk} shrunk, ` +
      `${kinds.gone} gone.${unchangedText(app, sum, kinds)}`),
    listHead('Grew most', 'flat'), list(change, GREW),
    listHead('Shrank most', 'flat'), list(change.map(value => -value), SHRANK),
    el('h3', {}, 'About the numbers'), el('p', { cls: 'where', tid: 'about' }, aboutNumbers(app)),
  ];
}

function rowsOrNothing(rows) {
  return rows.length ? rows : el('p', { cls: 'where' }, 'nothing');
}

function growthNote(before, change) {
  return before ? signed(shareText, change / Math.abs(before)) : 'new';
}

function countKinds(flat) {
  const kinds = { new: 0, grown: 0, shrunk: 0, gone: 0, same: 0 };
  for (let f = 0; f < flat.after.length; f++) kinds[changeOf(flat.before[f], flat.after[f])]++;
  return kinds;
}
