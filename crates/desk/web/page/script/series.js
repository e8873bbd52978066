// Follows values over the snapshots.

import { shapeOf } from './call_tree.js';
import { flatValues } from './model.js';

// Returns flat values for each snapshot, their totals, and the times. The model keeps it.
export function seriesOf(model) {
  if (!model.series) {
    const { profile, question } = model;
    const flat = profile.snapshots.map((_, i) => flatValues(model, i, question.measure));
    const total = flat.map(values => values.reduce((sum, value) => sum + value, 0));
    model.series = { flat, total, times: timesOf(profile) };
  }
  return model.series;
}

// Returns the milliseconds of each snapshot since the first; they never run backwards.
export function timesOf(profile) {
  const times = [];
  profile.snapshots.forEach((snapshot, i) => {
    const ms = Number(snapshot.ms) || 0;
    times.push(i ? Math.max(ms, times[i - 1]) : ms);
  });
  return times;
}

// Returns flat values for each snapshot without filters, folded only if `own` says so.
export function unfilteredFlat(model, own) {
  const { profile, question } = model;
  const shape = shapeOf(profile, false, own);
  const kept = new Uint8Array(shape.size).fill(1);
  const plain = { ...model, shape, kept, question: { ...question, own } };
  return profile.snapshots.map((_, i) => flatValues(plain, i, question.measure));
}
