// The tools above a view: which snapshots, search, what widths mean, which changes, the legend.

import { CHANGES, SIGNS } from './change.js';
import { button, el, fill, segments, byId } from './dom.js';
import { sinceText } from './format.js';
import { isDiff } from './state.js';
import { visibleText } from './text.js';

// Fills the row of tools: what compares, what the view offers, and the legend of a comparison.
export function drawTools(app, view) {
  const { state } = app;
  const withLegend = isDiff(state) && ['flame', 'table', 'map'].includes(state.view);
  fill(byId('tools'), partTools(app), state.view !== 'growth' && compareTools(app), view.tools(app),
    withLegend && legend());
}

// Makes the field for searching, and room to say how much it found.
export function searchTools(app, withHits) {
  return [
    app.fields.search.box,
    withHits && el('span', { cls: 'hits', id: 'hits', role: 'status', tid: 'hits' }),
  ];
}

// Makes the choice of what widths or areas show in a comparison.
export function widthTools(app, label) {
  if (!isDiff(app.state)) return null;
  const items = [['after', 'after'], ['before', 'before'], ['delta', '|Δ|', 'size of the change']];
  const choose = width => app.change({ width, zoom: [] });
  return [el('span', { cls: 'lab' }, label), segments(label, items, app.state.width, choose)];
}

// Makes the buttons that show only new, grown, shrunk or gone functions.
export function changeTools(app) {
  if (!isDiff(app.state)) return null;
  const ticked = app.state.kinds ? app.state.kinds.split(' ') : [];
  const toggle = kind => {
    const others = ticked.filter(known => known !== kind);
    const next = others.length < ticked.length ? others : [...ticked, kind];
    app.change({ kinds: next.length === CHANGES.length ? '' : next.join(' ') });
  };
  const one = kind => button(`${SIGNS[kind]} ${kind}`, ticked.includes(kind), () => toggle(kind),
    { 'data-k': kind });
  const group = { cls: 'seg', role: 'group', 'aria-label': 'Kinds of change' };
  return el('div', group, CHANGES.map(one));
}

// Makes a sentence that explains the view, at the right end.
export function hint(text) {
  return [el('span', { cls: 'grow' }), el('span', { cls: 'where' }, text)];
}

// Says that only a part of the profile is shown, and leads back.
function partTools(app) {
  if (!app.part) return null;
  const { chain, title } = app.part;
  return [
    el('b', {}, 'Inside ', el('bdi', {}, title)),
    chain.length > 1 && button('↑ one level up', null, () => app.openPart(chain.slice(0, -1))),
    button('✕ back to the whole', null, () => app.openPart([])),
  ];
}

function compareTools(app) {
  const { state, profile } = app;
  const { snapshots } = profile;
  if (snapshots.length < 2) return null;
  if (snapshots.length === 2) return twoSnapshots(app);
  return [
    el('span', { cls: 'lab' }, 'Snapshot'), snapshotChoice(app, 'after', 'b', 'Snapshot'),
    el('span', { cls: 'lab' }, 'against'),
    snapshotChoice(app, 'before', 'a', 'Compare against', state.before),
  ];
}

function twoSnapshots(app) {
  const base = app.profile.head.base ?? 0;
  const other = 1 - base;
  const choices = { before: [-1, base], after: [-1, other], diff: [base, other] };
  const current = Object.keys(choices).find(key =>
    choices[key][0] === app.state.before && choices[key][1] === app.state.after);
  const items = [['before', 'Before'], ['after', 'After'], ['diff', 'Diff']];
  const choose = key => app.change({ before: choices[key][0], after: choices[key][1] });
  return segments('Compare', items, current, choose, { tid: 'compare' });
}

function snapshotChoice(app, field, mark, label) {
  const { state, profile } = app;
  const option = (value, text) =>
    el('option', { value, selected: state[field] === value }, text);
  const nothing = field === 'before' && option(-1, 'nothing');
  const each = profile.snapshots.map((snapshot, i) => {
    const name = snapshot.ms || i ? sinceText(snapshot.ms) : visibleText(snapshot.name);
    return option(i, `#${i + 1} · ${name}`);
  });
  const change = event => app.change({ [field]: Number(event.target.value) });
  const attributes = { 'aria-label': label, tid: 'snap-' + mark, onchange: change };
  return el('select', attributes, nothing, each);
}

function legend() {
  const title = 'The stronger the colour, the larger the relative change';
  return el('span', { cls: 'legend', tid: 'legend', title },
    el('span', { cls: 'dn' }, '▼ less'), el('span', { cls: 'ramp', 'aria-hidden': 'true' }),
    el('span', { cls: 'up' }, '▲ more'));
}
