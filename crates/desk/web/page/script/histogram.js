// Makes histograms of allocation sizes, with one bar for each power of two.

import { el } from './dom.js';
import { bytesText, countText, roundBytesText } from './format.js';
import { companionOf } from './measures.js';

// Returns {note, charts} for what is known of sizes: the process's own histogram, or the sizes that
// samples carry, or only the mean size of each stack.
export function sizeCharts(app) {
  const { sizes } = app.profile.head;
  if (sizes) return processCharts(sizes);
  const pair = pairOf(app);
  if (!pair) return null;
  const isLast = app.model.question.after === app.profile.snapshots.length - 1;
  return app.profile.sizes && isLast ? sampleCharts(app, pair) : meanCharts(app, pair);
}

// Draws one histogram: bars from the smallest to the largest class that holds anything.
export function histogram({ title, values, write, classText, labelOf, tone }) {
  const first = values.findIndex(value => value > 0);
  if (first < 0) return el('div', {}, el('h3', {}, title), el('p', { cls: 'where' }, 'nothing'));
  const last = values.findLastIndex(value => value > 0);
  const most = Math.max(...values);
  const classes = [];
  for (let k = first; k <= last; k++) classes.push(k);
  const biggest = values.indexOf(most);
  // What holds little still has a bar; what holds nothing has none.
  const bar = k => el('div', {
    cls: tone, css: { '--w': values[k] && Math.max(0.6, 100 * values[k] / most) + '%' },
    title: `${classText(k)}: ${write(values[k])}`, 'data-class': k, 'data-value': values[k],
  }, k === biggest && el('span', {}, write(most)));
  const summary = `${title}: ${classes.length} classes, most in ${classText(biggest)} ` +
    `(${write(most)})`;
  return el('div', {}, el('h3', {}, title),
    el('div', { cls: 'hist', role: 'img', 'aria-label': summary }, classes.map(bar)),
    el('div', { cls: 'hx', 'aria-hidden': 'true' },
      classes.map(k => el('span', {}, labelOf(k)))));
}

// The histogram that the collector kept; it knows counts, not bytes.
function processCharts(sizes) {
  const from = k => k === 0 ? '0 to 1 B' : `${powerText(k)} up to ${powerText(k + 1)}`;
  const chart = (title, values, tone) => ({
    title, values, write: countText, classText: from, labelOf: powerText, tone,
  });
  const how = sizes.exact ? 'counted one by one' : 'estimated from samples';
  return {
    note: `Sizes of single allocations in the whole process, ${how}; filters do not change them. ` +
      'A bar holds sizes from its label up to the next one.',
    charts: [
      sizes.inuse && chart('objects held now', sizes.inuse, ''),
      sizes.alloc && chart('objects allocated in all', sizes.alloc, 'o'),
    ].filter(Boolean),
  };
}

function sampleCharts(app, { space, objects }) {
  const { sizes } = app.profile;
  const sums = emptyClasses();
  const amounts = { bytes: sizes.values(space.index), objects: sizes.values(objects.index) };
  for (let i = 0; i < sizes.nodes.length; i++) {
    if (!isKept(app, sizes.nodes[i])) continue;
    sums.bytes[sizes.log2[i]] += amounts.bytes[i];
    sums.objects[sizes.log2[i]] += amounts.objects[i];
  }
  return {
    note: 'From the size that each sample carries. A bar holds sizes up to its label and above ' +
      'the one before.',
    charts: bothCharts(sums, k => `up to ${powerText(k)}`),
  };
}

function meanCharts(app, { space, objects }) {
  const { profile, model } = app;
  const sums = emptyClasses();
  const bytes = profile.samplesOf(model.question.after, space.index);
  const counts = profile.samplesOf(model.question.after, objects.index);
  for (let i = 0; i < bytes.nodes.length; i++) {
    if (!(counts.values[i] > 0) || !isKept(app, bytes.nodes[i])) continue;
    const mean = Math.max(1, bytes.values[i] / counts.values[i]);
    const k = Math.min(63, Math.floor(Math.log2(mean)));
    sums.bytes[k] += bytes.values[i];
    sums.objects[k] += counts.values[i];
  }
  return {
    note: 'Mean sizes by stack, not sizes: this profile says only how many bytes and objects ' +
      'each stack has. A bar holds stacks whose mean size is from its label up to the next one.',
    charts: bothCharts(sums, k => `mean ${powerText(k)} up to ${powerText(k + 1)}`),
  };
}

function bothCharts(sums, classText) {
  const chart = (title, values, write, tone) =>
    ({ title, values, write, classText, labelOf: powerText, tone });
  return [
    chart('bytes', sums.bytes, bytesText, ''), chart('objects', sums.objects, countText, 'o'),
  ];
}

function pairOf(app) {
  const { measure } = app.model.question;
  const other = companionOf(app.profile.measures, measure);
  if (!other) return null;
  return measure.kind === 'space' ? { space: measure, objects: other }
    : { space: other, objects: measure };
}

function isKept(app, node) {
  return app.model.kept[app.model.shape.nodeToTree[node]];
}

function emptyClasses() {
  return { bytes: new Array(64).fill(0), objects: new Array(64).fill(0) };
}

function powerText(k) {
  return roundBytesText(2 ** k);
}
