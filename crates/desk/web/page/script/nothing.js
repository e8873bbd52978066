// Says why a view has nothing to show, and what would help.

import { valueText } from './format.js';
import { emptyView } from './pieces.js';
import { totalOf } from './profile.js';

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

function typeIsZero(app) {
  const { profile, model } = app;
  const { measure, after } = model.question;
  const title = `${measure.name} is 0 in every sample`;
  const alike = other => other.kind === measure.kind ? 0 : 1;
  for (const other of [...profile.measures.all].sort((a, b) => alike(a) - alike(b))) {
    const total = totalOf(profile, after, other.index);
    if (!total) continue;
    const words = `This profile has ${other.name} = ${valueText(other.unit, total)}.`;
    return emptyView(app, title, words);
  }
  return emptyView(app, title, 'The profile is empty.');
}
