// The table: functions with flat and cum; in a comparison what changed.

import { matches } from './call_tree.js';
import { isTicked } from './change.js';
import { el, fill } from './dom.js';
import { chip, emptyView } from './pieces.js';
import { changeTools, hint, searchTools } from './tools.js';
import { columnsFor } from './table_columns.js';

const FIRST_ROWS = 200;
const MORE_ROWS = 1000;

// Makes the view. `at` remembers how many rows are shown.
export function makeTableView() {
  const at = { app: null, host: null, shown: FIRST_ROWS };
  return {
    id: 'table', title: 'Table', hasSearch: true,
    tools: app => [
      searchTools(app), app.model.isDiff && hint(''), changeTools(app),
      !app.model.isDiff && hint('flat: allocated by the function itself · cum: with all it calls'),
    ],
    draw(app, host) {
      Object.assign(at, { app, host });
      drawTable(at);
    },
    mark: app => markRows(app, at.host),
    search: () => drawTable(at),
    keys: event => rowKeys(at.app, at.host, event),
    destroy: () => { at.shown = FIRST_ROWS; },
  };
}

// Marks the row of the selected function; also for other tables with data-f rows.
export function markRows(app, host) {
  for (const row of host.querySelectorAll('tr[data-f]')) {
    row.setAttribute('aria-selected', String(Number(row.dataset.f) === app.state.selected));
  }
}

// Moves the selection with the arrow keys, and pivots with Enter.
export function rowKeys(app, host, event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const isOnRow = document.activeElement.matches?.('tr[data-f]');
  if (event.key === 'Enter' && isOnRow && app.state.selected >= 0) {
    app.pivotOn(app.state.selected);
    return true;
  }
  if (!step) return false;
  const rows = [...host.querySelectorAll('tr[data-f]')];
  const current = rows.findIndex(row => Number(row.dataset.f) === app.state.selected);
  const next = rows[Math.max(0, current + step)];
  if (!next) return false;
  event.preventDefault();
  next.focus();
  app.select(Number(next.dataset.f));
  app.say(next.textContent);
  return true;
}

// Makes the listeners of a row for a function.
export function rowActions(app, f) {
  return {
    'data-f': f, 'data-name': app.profile.functionName[f], tabindex: -1,
    'aria-selected': String(app.state.selected === f),
    onclick: () => app.select(f), ondblclick: () => app.pivotOn(f),
  };
}

function drawTable(at) {
  const { app, host } = at;
  const columns = columnsFor(app);
  const { rows, unchanged } = listedFunctions(app);
  if (!rows.length) {
    fill(host, nothingListed(app));
    return;
  }
  const sort = columns.find(column => column.key === app.state.sort) || columns[0];
  const byName = app.state.sort === 'name';
  sortRows(app, rows, byName ? null : sort);
  const most = columns.map(column => largestOf(column, rows));
  if (app.model.isDiff) most[1] = most[2] = Math.max(most[1], most[2]);
  const key = byName ? 'name' : sort.key;
  const heads = columns.map(column => headCell(app, column.key, column.title, key));
  const shown = rows.slice(0, at.shown);
  const names = app.names.listed(shown, 74);
  const body = shown.map(f => tableRow(app, columns, most, f, names.get(f)));
  const width = columns.length + 2;
  const table = el('table', { tid: 'top-table', 'aria-label': 'Functions', role: 'grid' },
    el('thead', {}, el('tr', {}, heads, headCell(app, 'name', 'Function', key, 'l'),
      el('th', { cls: 'l hm', scope: 'col' }, 'Module'))),
    el('tbody', {}, body, moreRow(at, rows.length, width), unchangedRow(unchanged, width)));
  fill(host, el('div', { cls: 'scroll' }, table));
  const first = host.querySelector('tr[aria-selected=true]') || host.querySelector('tr[data-f]');
  first.tabIndex = 0;
}

// Lists the functions that search, filters and ticks leave.
function listedFunctions(app) {
  const { model, profile, state } = app;
  const { flat, cum } = model;
  const { regex } = app.patterns.search;
  const found = regex && matches(profile, regex);
  const rows = [];
  let unchanged = 0;
  for (let f = 0; f < profile.functionCount; f++) {
    if (!cum.after[f] && !cum.before[f] && !flat.after[f] && !flat.before[f]) continue;
    if (found && !found[f]) continue;
    if (model.isDiff) {
      const isFlatSame = flat.before[f] === flat.after[f];
      if (isFlatSame && cum.before[f] === cum.after[f] && !found) {
        unchanged++;
        continue;
      }
      const [before, after] = isFlatSame ? [cum.before[f], cum.after[f]]
        : [flat.before[f], flat.after[f]];
      if (!isTicked(state.kinds, before, after)) continue;
    }
    rows.push(f);
  }
  return { rows, unchanged };
}

function sortRows(app, rows, column) {
  const direction = app.state.descending ? 1 : -1;
  const { raw } = app.names;
  const byName = (a, b) => raw(a) < raw(b) ? -1 : raw(a) > raw(b) ? 1 : a - b;
  const byValue = (a, b) => {
    const difference = column.value(b) - column.value(a);
    return isNaN(difference) ? 0 : difference;
  };
  const byCum = (a, b) => app.model.cum.after[b] - app.model.cum.after[a];
  rows.sort(column
    ? (a, b) => direction * byValue(a, b) || byCum(a, b) || byName(a, b)
    : (a, b) => -direction * byName(a, b));
}

function largestOf(column, rows) {
  let most = 0;
  for (const f of rows) {
    const value = Math.abs(column.value(f));
    if (isFinite(value) && value > most) most = value;
  }
  return most || 1;
}

function headCell(app, key, title, current, cls) {
  const { descending } = app.state;
  const isCurrent = key === current;
  const order = isCurrent ? descending ? 'descending' : 'ascending' : null;
  const sort = () => app.change({
    sort: key, descending: isCurrent ? !descending : key !== 'name',
  });
  const arrow = isCurrent ? descending ? ' ↓' : ' ↑' : '';
  return el('th', { cls, scope: 'col', 'aria-sort': order },
    el('button', { 'data-sort': key, type: 'button', onclick: sort }, title, arrow));
}

function tableRow(app, columns, most, f, name) {
  const { flat, cum, isDiff } = app.model;
  const numbers = { 'data-flat': flat.after[f], 'data-cum': cum.after[f] };
  if (isDiff) {
    numbers['data-before'] = flat.before[f];
    numbers['data-after'] = flat.after[f];
    numbers['data-delta'] = flat.after[f] - flat.before[f];
    numbers['data-cum-before'] = cum.before[f];
  }
  return el('tr', { ...rowActions(app, f), ...numbers },
    columns.map((column, i) => column.cell(f, most[i])),
    el('td', { cls: 'l name', title: app.names.full(f) }, chip(app.palette.of(f)),
      el('bdi', {}, name)),
    el('td', { cls: 'l hm' }, el('small', {},
      el('bdi', {}, app.moduleText(app.profile.moduleOf[f])))));
}

function moreRow(at, count, width) {
  if (count <= at.shown) return null;
  const more = () => {
    at.shown += MORE_ROWS;
    drawTable(at);
  };
  const text = `${count - at.shown} more functions – show ${MORE_ROWS} more`;
  return el('tr', {}, el('td', { cls: 'l', colspan: width },
    el('button', { cls: 'link', type: 'button', onclick: more, tid: 'more' }, text)));
}

function unchangedRow(count, width) {
  if (!count) return null;
  const words = count === 1 ? '1 function' : `${count} functions`;
  const text = `${words} did not change; search finds them too.`;
  return el('tr', {}, el('td', { cls: 'l', colspan: width }, el('small', {}, text)));
}

function nothingListed(app) {
  const { search } = app.state;
  const why = search ? `No function matches /${search}/.`
    : app.model.isDiff ? 'No function changed in one of the selected ways.'
      : 'The filters leave no samples.';
  return emptyView(app, 'Nothing to list', why);
}
