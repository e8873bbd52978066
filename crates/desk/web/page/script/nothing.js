// Says why a view has nothing to show, and what would help.

import { button, el } from './dom.js';
import { valueText } from './format.js';
import { emptyView } from './pieces.js';
import { totalOf } from './profile.js';

// The types to suggest first, as the command line does.
const TELLING = ['peak_space', 'alloc_space'];

// Returns an explanation if the question has no values, else null.
export function noData(app) {
  const { model } = app;
  const { weight } = model.tree;
  if (weight.after[0] > 0 || weight.before?.[0] > 0) return null;
  return model.whole.after > 0 || model.whole.before > 0 ? filteredAway(app) : typeIsZero(app);
}

function filteredAway(app) {
  const { focus, ignore } = app.state;
  const filters = [focus && `focus /${focus}/`, ignore && `ignore /${ignore}/`].filter(Boolean);
  const subject = filters.join(' and ') || 'This choice';
  return emptyView(app, 'No stack is left', `${subject} keeps 0 of ${app.write(app.whole())}.`);
}

// A type without values says why, and leads to one that has some.
function typeIsZero(app) {
  const { profile, model } = app;
  const { measure, after } = model.question;
  const title = `${measure.name} is 0 in every sample`;
  const known = profile.measures.all.map(other => [other, totalOf(profile, after, other.index)]);
  const others = known.filter(([, total]) => total).sort(([a], [b]) => rankOf(a) - rankOf(b));
  if (!others.length) return emptyView(app, title, emptyWhy(app));
  const words = others.map(([other, total]) => `${other.name} is ${valueText(other.unit, total)}`);
  const [[first]] = others;
  const show = () => app.change({ family: first.family, kind: first.kind, zoom: [] });
  return el('div', { cls: 'empty', tid: 'empty' }, el('b', {}, title),
    el('span', {}, `${zeroWhy(measure, others)}${words.join(', ')}.`),
    button(`Show ${first.name}`, null, show, { tid: 'show-other' }));
}

// Says why nothing is in use although something was.
function zeroWhy({ family }, others) {
  const wasHeld = others.some(([other]) => other.family === 'peak' || other.family === 'alloc');
  return family === 'inuse' && wasHeld
    ? 'All memory that the profile knows of was freed by then: ' : 'The profile has other values: ';
}

function emptyWhy(app) {
  const { period } = app.profile.snapshots[app.model.question.after];
  return period > 1
    ? 'No allocation was sampled, because the program allocated little. ' +
      'heapprof record --exact counts every allocation.'
    : 'The profile has no values other than 0.';
}

// Bytes at the peak tell most, then all that was allocated.
function rankOf({ name }) {
  const at = TELLING.indexOf(name);
  return at < 0 ? TELLING.length : at;
}
