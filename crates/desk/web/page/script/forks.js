// The forks view: what forked children share, load too late, and copy, as an audit noted it. The
// numbers are those of heapprof fork-audit; nothing is computed here.

import { el, fill } from './dom.js';
import { nanosecondsText, valueText } from './format.js';
import { visibleText } from './text.js';
import { hint } from './tools.js';

// A column: its title, whether it is text, and what it shows of a row.
const bytes = (title, key) => [title, false, row => valueText('bytes', row[key])];
const count = (title, key) => [title, false, row => valueText('count', row[key])];
const text = (title, key) => [title, true, row => visibleText(row[key] || '')];
const site = ['First asked for at', true, row => visibleText(row.site.join(' < '))];
const time = value => (value === null ? '' : nanosecondsText(value * 1000));

const CHILDREN = [
  count('Process', 'pid'), count('Parent', 'parent'), count('Generation', 'generation'),
  ['Looked at', false, row => time(row.looked_micros)], ['Age', false, row => time(row.age_micros)],
  bytes('RSS', 'rss'), bytes('PSS', 'pss'), bytes('Private dirty', 'private_dirty'),
  bytes('New', 'new_space'), bytes('Shared', 'shared_space'), bytes('Copied', 'unshared_space'),
  bytes("heapprof's own", 'own_private_space'), text('End', 'ending'),
  ['What it is', true, row => visibleText([row.title || row.program, row.lacks].join(' '))],
];
const LOADS = [
  count('Children', 'children'), bytes('In one child', 'each'), bytes('Together', 'flat'),
  ['Time', false, row => time(row.micros)], text('How', 'kind'), text('What', 'name'),
  text('Outcome', 'outcome'), text('Before the fork', 'before'), site,
];
const MISSING = [
  count('Children', 'children'), count('Attempts', 'attempts'), count('Stat calls', 'stats'),
  text('What', 'name'), site,
];
const UNSHARED = [
  bytes('Together', 'bytes'), bytes('In one child', 'each'), count('Children', 'children'),
  text('Kind of memory', 'kind'), text('Allocated by', 'function'),
  ['Where', true, row => (row.file ? visibleText(`${row.file}:${row.line}`) : '')],
];
const TABLES = [
  ['children', 'Children, at the last reading', CHILDREN],
  ['loads', 'Loaded after the fork (in one child: with what it loads in turn)', LOADS],
  ['missing', 'Searched for after the fork and not found: costs system calls but no memory',
    MISSING],
  ['unshared', 'Inherited, then copied because it was written to', UNSHARED],
];

export function makeForksView() {
  return {
    id: 'forks', title: 'Forks', allowsNothing: true,
    isThere: app => Boolean(app.profile.head.forks),
    tools: () => hint(
      'The same as heapprof fork-audit prints; focus, ignore and search have no effect here.'),
    draw: drawForks,
    keys: () => false,
    destroy() {},
  };
}

function drawForks(app, host) {
  const { forks } = app.profile.head;
  if (!forks) return;
  const cards = TABLES.filter(([key]) => forks[key].length).map(([key, title, columns]) =>
    el('section', { cls: 'card wide', tid: 'forks-' + key },
      el('h2', {}, title), rowsTable(title, columns, forks[key])));
  fill(host, el('div', { cls: 'sum', tid: 'forks', tabindex: 0 }, cards, leftOut(forks)));
}

function rowsTable(title, columns, rows) {
  const side = isText => (isText ? 'l' : null);
  const head = columns.map(([name, isText]) =>
    el('th', { cls: side(isText), scope: 'col' }, name));
  const row = of => el('tr', {}, columns.map(([, isText, show]) =>
    el('td', { cls: side(isText) }, show(of))));
  return el('div', { cls: 'wider' }, el('table', { 'aria-label': title },
    el('thead', {}, el('tr', {}, head)), el('tbody', {}, rows.map(row))));
}

function leftOut({ other }) {
  if (!other.rows) return null;
  return el('p', { cls: 'where', tid: 'forks-other' },
    `${other.rows} more rows have copied ${valueText('bytes', other.bytes)}; ` +
    'heapprof fork-audit shows all.');
}
