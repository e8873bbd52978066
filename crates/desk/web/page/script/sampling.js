// Says how the profiles that are shown were recorded: one profile, or one before and one after.

import { roundBytesText, shareText, valueText } from './format.js';

// Returns the distance between two samples: 1 means exact, 0 unknown. If two profiles that are
// compared have different ones, it returns both.
export function shownPeriods({ profile, model }) {
  const { before, after } = model.question;
  const shown = (model.isDiff ? [before, after] : [after])
    .map(at => profile.snapshots[at].period);
  return shown[0] === shown.at(-1) ? shown.slice(-1) : shown;
}

// Says in a few words whether values are exact, and how sure the total is.
export function exactnessText(app) {
  const periods = shownPeriods(app);
  const brief = period => period === 1 ? 'exact'
    : period ? `1 per ${periodText(app.profile, period)}` : 'sampling unknown';
  if (periods.length === 2) {
    const [before, after] = periods.map(brief);
    const kind = periods.some(period => period > 1) ? '≈ estimate: ' : '';
    return `${kind}before ${before}, after ${after}`;
  }
  if (!(periods[0] > 1)) return brief(periods[0]);
  const error = totalError(app);
  const sure = error != null ? ` ± ${shareText(error)}` : '';
  return `≈ estimate${sure}, ${brief(periods[0])}`;
}

// Says in sentences how the values came about.
export function recordedText(app) {
  const periods = shownPeriods(app);
  const sentence = period => period === 1 ? 'Every allocation was recorded; the values are exact.'
    : period ? `One sample for each ${periodText(app.profile, period)} on average, scaled up: ` +
      'values are estimates, small ones rough.' : 'The file does not say how it was sampled.';
  if (periods.length === 2) {
    const [before, after] = periods.map(sentence);
    const kind = periods.some(period => period > 1) ? ' The difference is an estimate.' : '';
    return `Before: ${before} After: ${after}${kind}`;
  }
  const error = totalError(app);
  const sure = error == null ? ''
    : ` The total is right within ${shareText(error)} in 19 of 20 recordings.`;
  return sentence(periods[0]) + sure;
}

function totalError({ profile, model }) {
  return profile.head.estimate?.[model.question.measure.name]?.total;
}

// Writes the distance between two samples. In a heap profile it is bytes.
function periodText(profile, period) {
  if (profile.isHeap) return roundBytesText(period);
  const { head, measures } = profile;
  const measure = measures.all.find(({ name }) => name === head.default) || measures.all[0];
  return valueText(measure.unit, period);
}
