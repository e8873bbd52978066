// The panel for one function: its place, values, callers, callees and lines.

import { hasAssembly } from './assembly.js';
import { copyText } from './copy.js';
import { button, el } from './dom.js';
import { bytesText, countText, shareText, signed, valueText } from './format.js';
import { kindsOf, meanSize } from './measures.js';
import { flatValues } from './model.js';
import { linesOf, neighboursOf } from './neighbours.js';
import { functionRow, listHead, nameOn, placeOf, plainRow } from './pieces.js';
import { seriesOf } from './series.js';
import { sourceLine } from './source.js';
import { sparkline } from './spark.js';
import { exactPattern } from './text.js';
import { factTable } from './tip.js';

const NEIGHBOURS = 6;
const LINES = 8;

// Returns what the panel shows for a function.
export function drawFunction(app, f) {
  const full = app.names.full(f);
  const short = app.names.nice(f, 44);
  const near = neighboursOf(app.model, f);
  return [
    el('p', { cls: 'fn', tid: 'panel-name', 'data-name': app.profile.functionName[f] },
      el('bdi', {}, short)),
    short !== full && el('details', { cls: 'where' }, el('summary', {}, 'full name'),
      el('code', {}, nameOn(app, f))),
    placeOf(app, f, true),
    functionButtons(app, f),
    app.profile.isOther(f) && otherNote(app),
    ownValues(app, f),
    overTime(app, f),
    listHead(app.profile.isHeap ? 'Own allocations' : 'Own values', 'objects · mean'),
    allMeasures(app, f),
    neighbourList(app, f, 'Callers', near.callers),
    neighbourList(app, f, 'Callees', near.callees, near.own),
    lineList(app, f),
  ];
}

function functionButtons(app, f) {
  const name = app.profile.functionName[f];
  const clear = { 'aria-label': 'Clear selection', title: 'Clear selection (Esc)' };
  // A server filters stacks before imports are folded. The file of a module is in them.
  const imported = app.source.isLive ? app.profile.importedFrom(f) : null;
  const only = exactPattern(imported ?? name);
  return el('div', { cls: 'acts' },
    button('Pivot', null, () => app.pivotOn(f), { tid: 'pivot', title: 'Callers and callees (P)' }),
    button('Focus', null, () => app.change({ focus: only, zoom: [] }), { tid: 'focus-on' }),
    button('Ignore', null, () => app.change({ ignore: only, selected: -1, zoom: [], pivot: -1 })),
    hasAssembly(app, f) && button('Assembly', null, () => app.toggleAssembly(),
      { tid: 'assembly-button', title: 'Lines and instructions (A)' }),
    button('Copy name', null, event => copyText(name, event.currentTarget)),
    button('✕', null, () => app.select(-1), clear));
}

function otherNote(app) {
  const words = app.source.isLive
    ? 'Small stacks that were left out. A click on the box asks for them.'
    : 'Small stacks that were left out of this file. heapprof report --max-nodes keeps more.';
  return el('p', { cls: 'where' }, words);
}

function ownValues(app, f) {
  const { flat, cum, isDiff } = app.model;
  const withShare = value => `${app.write(value)} · ${shareText(value / app.whole())}`;
  const pair = values => `${app.write(values.before[f])} → ${app.write(values.after[f])}`;
  const rows = isDiff
    ? [['flat before → after', pair(flat)], ['cum before → after', pair(cum)]]
    : [['flat (own)', withShare(flat.after[f])], ['cum (with callees)', withShare(cum.after[f])]];
  const exact = { 'data-flat': flat.after[f], 'data-cum': cum.after[f] };
  return factTable(rows, { tid: 'panel-values', ...exact });
}

function overTime(app, f) {
  if (app.profile.snapshots.length < 3) return null;
  const { flat, times } = seriesOf(app.model);
  const values = flat.map(snapshot => snapshot[f]);
  return [listHead('Over time', 'flat'), sparkline(values, times, 300, 34)];
}

// Shows the function's own values in each family.
function allMeasures(app, f) {
  const { model, profile, state } = app;
  const valueOf = measure => flatValues(model, model.question.after, measure)[f];
  const row = family => {
    const { space, objects } = family.kinds;
    const shown = family.kinds[state.kind] || kindsOf(family)[0];
    const value = valueOf(shown);
    const counted = space && objects && shown === space ? valueOf(objects) : 0;
    return el('tr', { cls: family.key === state.family ? 'on' : null },
      el('th', { cls: 'l', scope: 'row' }, family.label),
      el('td', {}, valueText(shown.unit, value)), el('td', {}, counted ? countText(counted) : ''),
      el('td', {}, counted ? bytesText(meanSize(space, value, counted)) : ''));
  };
  return el('table', { cls: 'kv' }, el('tbody', {}, profile.measures.families.map(row)));
}

// Lists callers or callees with their share of the function's cum; in a comparison with changes.
function neighbourList(app, f, title, rows, own) {
  const { cum, isDiff } = app.model;
  const whole = Math.max(Math.abs(cum.after[f]), Math.abs(cum.after[f] - cum.before[f]), 1);
  const text = value => isDiff ? signed(app.write, value) : app.write(value);
  const look = value => ({
    value, text: text(value), share: value / whole, note: isDiff ? '' : shareText(value / whole),
  });
  const one = ([g, value]) =>
    g < 0 ? plainRow('(root)', look(value)) : functionRow(app, g, look(value));
  const rest = rows.length > NEIGHBOURS
    && el('p', { cls: 'where' }, `and ${rows.length - NEIGHBOURS} more`);
  return el('section', { tid: title.toLowerCase() },
    listHead(title, isDiff ? 'change' : 'share of cum'),
    own ? plainRow(app.profile.isHeap ? '(its own allocations)' : '(itself)', look(own)) : null,
    rows.slice(0, NEIGHBOURS).map(one), rest,
    !rows.length && !own && el('p', { cls: 'where' }, 'none'));
}

function lineList(app, f) {
  const { flat, isDiff } = app.model;
  const whole = Math.abs(isDiff ? flat.after[f] - flat.before[f] : flat.after[f]) || 1;
  const file = app.profile.fileOf(f).replace(/^.*\//, '');
  const rows = linesOf(app.model, f).slice(0, LINES).map(([line, before, after]) => {
    const value = isDiff ? after - before : after;
    const name = line ? `${file}:${line}` : '(no line)';
    return plainRow(name, {
      value, share: value / whole, note: shareText(value / whole),
      text: isDiff ? signed(app.write, value) : app.write(value),
      code: sourceLine(app.profile, f, line),
    });
  });
  return el('section', { tid: 'lines' }, listHead('Source lines', isDiff ? 'change' : 'flat'),
    rows.length ? rows : el('p', { cls: 'where' }, 'It allocates nothing itself here.'));
}
