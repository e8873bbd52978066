// The columns of the table: what each sorts by and what its cells show.

import { SIGNS, changeOf } from './change.js';
import { el } from './dom.js';
import { bytesText, countText, shareText, signed } from './format.js';
import { meanSize } from './measures.js';

// Returns the columns for the current mode: [{key, title, value(f), cells(f, largest)}].
export function columnsFor(app) {
  return app.model.isDiff ? diffColumns(app) : valueColumns(app);
}

// Makes a bar. `left` moves its start, for bars that grow from the middle.
function bar(share, colour, left) {
  const width = share > 0 ? Math.max(share * 100, 1) : 0;
  const css = { '--w': width.toFixed(2) + '%', '--c': colour, '--l': left };
  return el('span', { cls: 'b', 'aria-hidden': 'true' }, el('i', { css }));
}

function valueColumns(app) {
  const { model } = app;
  const { measure, companion } = model.question;
  const { flat, cum } = model;
  const isSpace = measure.kind === 'space';
  const writeOther = isSpace ? countText : bytesText;
  const amount = (value, part, colour) => el('td', {}, app.write(value), ' ',
    el('small', {}, shareText(value / app.whole())), bar(part, colour));
  const columns = [
    { key: 'flat', title: 'Flat', value: f => flat.after[f],
      cell: (f, most) => amount(flat.after[f], Math.abs(flat.after[f]) / most) },
    { key: 'cum', title: 'Cum', value: f => cum.after[f],
      cell: f => amount(cum.after[f], Math.abs(cum.after[f]) / app.whole(), 'var(--bar)') },
  ];
  if (!companion) return columns;
  const mean = f => flat.objects[f] && flat.after[f]
    ? meanSize(measure, flat.after[f], flat.objects[f]) : 0;
  return [...columns,
    { key: 'obj', title: isSpace ? 'Objects' : 'Bytes', value: f => flat.objects[f],
      cell: f => el('td', {}, flat.objects[f] ? writeOther(flat.objects[f]) : '') },
    { key: 'mean', title: 'Mean size', value: mean,
      cell: f => el('td', {}, mean(f) ? bytesText(mean(f)) : '') },
  ];
}

function diffColumns(app) {
  const { flat, cum } = app.model;
  const change = f => flat.after[f] - flat.before[f];
  const cumChange = f => cum.after[f] - cum.before[f];
  return [
    { key: 'delta', title: 'Δ flat', value: f => Math.abs(change(f)),
      cell: (f, most) => changeCell(app, flat.before[f], flat.after[f], most) },
    { key: 'a', title: 'Before', value: f => flat.before[f],
      cell: (f, most) => el('td', {}, app.write(flat.before[f]),
        bar(flat.before[f] / most, 'var(--mu)')) },
    { key: 'b', title: 'After', value: f => flat.after[f],
      cell: (f, most) => el('td', {}, app.write(flat.after[f]), bar(flat.after[f] / most)) },
    { key: 'gr', title: 'Growth', value: f => growth(flat.before[f], flat.after[f]),
      cell: f => el('td', { cls: tone(change(f)) }, growthText(flat.before[f], flat.after[f])) },
    { key: 'dc', title: 'Δ cum', value: f => Math.abs(cumChange(f)),
      cell: f => el('td', { cls: tone(cumChange(f)) },
        cumChange(f) ? signed(app.write, cumChange(f)) : '') },
  ];
}

function changeCell(app, before, after, most) {
  const change = after - before;
  const half = Math.abs(change) / most / 2;
  const left = change > 0 ? '50%' : (50 - half * 100) + '%';
  const sign = SIGNS[changeOf(before, after)];
  return el('td', { cls: tone(change) }, el('b', {}, sign + ' ' + signed(app.write, change)),
    bar(half, change > 0 ? 'var(--upf)' : 'var(--dnf)', left));
}

function growth(before, after) {
  if (before) return (after - before) / Math.abs(before);
  return after ? Infinity : 0;
}

function growthText(before, after) {
  const kind = changeOf(before, after);
  if (kind === 'new' || kind === 'gone') return kind;
  return kind === 'same' ? '' : signed(shareText, growth(before, after));
}

function tone(change) {
  return change > 0 ? 'up' : change < 0 ? 'dn' : null;
}
