// The first row: the program, where the numbers come from, and how much it is.

import { button, byId, el, fill } from './dom.js';
import { bytesText, countText, momentText, signed } from './format.js';
import { meanSize } from './measures.js';
import { exactnessText, recordedText, shownPeriods } from './sampling.js';
import { visibleText } from './text.js';

// Fills the header.
export function drawHeader(app) {
  const { profile, model } = app;
  const snapshot = profile.snapshots[model.question.after];
  fill(byId('id'),
    el('h1', { tid: 'program' }, el('bdi', {}, visibleText(profile.program))),
    profileChoice(app) || source(app, snapshot),
    exactness(app),
    el('span', { cls: 'grow' }),
    model.isDiff ? changeFacts(app) : valueFacts(app),
    profile.isHeap && residentFact(snapshot, model.question.measure),
    app.source.viewsAddress && el('a', { cls: 'src', href: app.source.viewsAddress, tid: 'pprof-views' },
      'pprof’s views'),
    button('SQL', app.state.sql, () => app.toggleSql(), { tid: 'sql-button', title: 'SQL (S)' }),
    button(app.palette.theme === 'dark' ? '☀' : '☾', null, () => app.toggleTheme(),
      { 'aria-label': 'Light or dark', tid: 'theme' }),
    button('?', null, () => app.help(), { 'aria-label': 'Keys and words' }));
}

function exactness(app) {
  const periods = shownPeriods(app);
  const isExact = periods.every(period => period === 1);
  const title = isExact ? 'Every allocation is counted.'
    : periods.length === 2 ? recordedText(app)
    : periods[0] ? 'Sampled: the numbers are estimates. ± is the error that 19 of 20 ' +
      'recordings stay within.' : 'The file does not say how it was sampled.';
  return el('span', { cls: 'badge ' + (isExact ? 'ok' : 'wa'), tid: 'exactness', title },
    exactnessText(app));
}

function source(app, snapshot) {
  const { profile, model } = app;
  const names = profile.snapshots.map(known => visibleText(known.name));
  const { before, after } = model.question;
  const shown = names.length > 2 ? `${names.length} snapshots`
    : model.isDiff ? `${names[before]} → ${names[after]}` : names[after];
  return el('span', { cls: 'src', title: names.join('\n') },
    el('bdi', {}, shown), ' · ' + momentText(snapshot.t));
}

// Makes the choice of profiles, if a server has several.
function profileChoice(app) {
  if (!(app.profiles?.length > 1)) return null;
  const { source: from, profiles } = app;
  const { profile, base } = from.chosen;
  // If only a base is chosen, the last one is compared with it.
  const shown = profile || base && app.profile.snapshots.at(-1).name;
  const choice = (label, current, none, address) => {
    const change = event => location.assign(address(event.target.value));
    const nothing = none && el('option', { value: '', selected: !current }, none);
    const each = profiles.map(({ name, title }) =>
      el('option', { value: name, selected: name === current }, visibleText(title || name)));
    return el('select', { 'aria-label': label, onchange: change }, nothing, each);
  };
  return el('span', { cls: 'choice' },
    choice('Profile', shown, from.isSeries && 'all profiles',
      name => from.addressOf(name, name && base)),
    choice('Compare with', base, 'compare with …', name => from.addressOf(profile, name)));
}

function fact(amount, words, tone) {
  return el('span', { cls: 'fact ' + (tone || '') }, el('b', {}, amount), el('span', {}, words));
}

function changeFacts(app) {
  const { before, after } = app.model.total;
  const tone = after > before ? 'up' : after < before ? 'dn' : '';
  const sign = after > before ? '▲ ' : after < before ? '▼ ' : '';
  return [
    fact(app.write(before), 'before'), fact(app.write(after), 'after'),
    fact(sign + signed(app.write, after - before), '', tone),
  ];
}

function valueFacts(app) {
  const { model } = app;
  const { measure, companion } = model.question;
  const { after, objects } = model.total;
  const label = app.familyLabel(measure).toLowerCase();
  const withMean = measure.kind === 'space' && companion && objects > 0;
  const mean = withMean && bytesText(meanSize(measure, after, objects));
  return [
    fact(app.write(after), label), withMean && fact(countText(objects), `objects, mean ${mean}`),
  ];
}

// A peak stands beside the peak RSS, and all else beside RSS at the snapshot's time.
function residentFact(snapshot, measure) {
  if (measure.family === 'peak') {
    return snapshot.peakRss && fact(bytesText(snapshot.peakRss), 'peak RSS');
  }
  if (snapshot.rss) return fact(bytesText(snapshot.rss), 'RSS');
  const title = 'The collector did not record the resident set.';
  return el('span', { cls: 'fact' }, el('span', { title }, 'RSS not recorded'));
}
