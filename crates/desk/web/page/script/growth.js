// The growth view: which functions grow, by the verdicts that heapprof gave. The page sorts them
// and draws their lines; it gives no verdicts of its own.

import { matches } from './call_tree.js';
import { el, fill } from './dom.js';
import { signed } from './format.js';
import { chip, emptyView } from './pieces.js';
import { timesOf, unfilteredFlat } from './series.js';
import { sparkline } from './spark.js';
import { markRows, rowActions, rowKeys } from './table.js';
import { RECORD_SEVERAL } from './timeline.js';
import { hint, searchTools } from './tools.js';

// Verdicts in order of what matters first, with the sign and tone of each.
const VERDICTS = {
  'steady growth': { rank: 4, sign: '▲ ', tone: 'leak' },
  'grows in steps': { rank: 3, sign: '△ ', tone: 'steps' },
  'levels off': { rank: 1, sign: '', tone: '' },
  'burst, freed': { rank: 0, sign: '', tone: '' },
  'no trend': { rank: 0, sign: '', tone: '' },
};
const HOUR = 3.6e6;
const TITLES = ['Verdict', 'Over time', 'Slope', 'Grew in', 'Fit R²', 'First', 'Last', 'Largest'];

export function makeGrowthView() {
  const at = { app: null, host: null };
  return {
    id: 'growth', title: 'Growth', hasSearch: true, allowsNothing: true,
    isEmpty: app => !rowsFor(app),
    tools: app => [searchTools(app), hint(scopeText(app))],
    draw(app, host) {
      Object.assign(at, { app, host });
      drawGrowth(app, host);
    },
    mark: app => markRows(app, at.host),
    search: () => drawGrowth(at.app, at.host),
    keys: event => rowKeys(at.app, at.host, event),
    destroy() {},
  };
}

function rowsFor(app) {
  const { head, snapshots } = app.profile;
  return snapshots.length >= 3 && head.growth?.[app.model.question.measure.name] || null;
}

function scopeText(app) {
  const { focus, ignore } = app.state;
  return focus || ignore
    ? 'Verdicts are for the whole profile: focus and ignore do not change them.'
    : 'Flat of each function over all snapshots; a line is drawn to its own scale.';
}

function drawGrowth(app, host) {
  const rows = rowsFor(app);
  if (!rows) {
    fill(host, noGrowth(app));
    return;
  }
  const { regex } = app.patterns.search;
  const found = regex && matches(app.profile, regex);
  const shown = rows.filter(row => !found || found[row.f]).sort(byWeight);
  if (!shown.length) {
    const why = found ? `No function matches /${app.state.search}/.` : 'No function has a trend.';
    fill(host, emptyView(app, 'Nothing to list', why));
    return;
  }
  const { head, snapshots } = app.profile;
  const flat = unfilteredFlat(app.model, head.growth_own_code ?? head.own_code === true);
  const times = timesOf(app.profile);
  const unit = slopeUnit(Number(snapshots[snapshots.length - 1].ms));
  const titles = TITLES.map((title, i) =>
    el('th', { cls: i < 2 ? 'l' : null, scope: 'col' }, title));
  const valuesOf = f => flat.map(values => values[f]);
  const body = shown.map(row => growthRow(app, row, valuesOf(row.f), times, unit));
  const table = el('table', { tid: 'growth-table', role: 'grid', 'aria-label': 'Growth' },
    el('thead', {}, el('tr', {}, titles, el('th', { cls: 'l', scope: 'col' }, 'Function'))),
    el('tbody', {}, body));
  fill(host, el('div', { cls: 'scroll' }, table));
  host.querySelector('tr[data-f]').tabIndex = 0;
}

function byWeight(a, b) {
  const rank = row => VERDICTS[row.verdict]?.rank ?? 0;
  return rank(b) - rank(a) || b.slope - a.slope || b.max - a.max || a.f - b.f;
}

function growthRow(app, row, values, times, unit) {
  const { rank, sign, tone } = VERDICTS[row.verdict] || VERDICTS['no trend'];
  const slope = row.slope * unit.ms / HOUR;
  const grows = rank >= 3;
  return el('tr', {
    ...rowActions(app, row.f), 'data-verdict': row.verdict, 'data-slope': row.slope,
    'data-first': row.first, 'data-last': row.last, 'data-max': row.max,
  },
    el('td', { cls: 'l' }, el('span', { cls: 'verdict ' + tone }, sign + row.verdict)),
    el('td', { cls: 'l' }, sparkline(values, times, 150, 22)),
    el('td', {}, el('b', {}, grows ? signed(app.write, slope) + unit.text : '–')),
    el('td', {}, `${row.grew} of ${row.of}`),
    el('td', {}, Number(row.r2).toFixed(2)),
    el('td', {}, app.write(row.first)), el('td', {}, app.write(row.last)),
    el('td', {}, app.write(row.max)),
    el('td', { cls: 'l name', title: app.names.full(row.f) }, chip(app.palette.of(row.f)),
      el('bdi', {}, app.names.nice(row.f, 60))));
}

// Chooses the span of time that slopes are given for.
function slopeUnit(ms) {
  if (ms > HOUR) return { ms: HOUR, text: '/h' };
  return ms > 12e4 ? { ms: 6e4, text: '/min' } : { ms: 1e3, text: '/s' };
}

function noGrowth(app) {
  const { measure } = app.model.question;
  if (app.profile.snapshots.length >= 3) {
    const words = `heapprof gave no verdicts for ${measure.name}.`;
    return emptyView(app, 'No verdicts for this type', words);
  }
  const words = 'Then each function gets a line over time, a slope and a verdict:';
  return emptyView(app, 'Growth needs at least three snapshots', words, RECORD_SEVERAL);
}
