// Says how the profiles that are shown were recorded: one profile, or one before and one after.

import { roundBytesText, shareText, valueText } from './format.js';
import { totalOf } from './profile.js';

// In sampling periods: what a function may hold of which no sample was taken, what must be sampled
// of it after that until it is certain to have grown, and the square of 1.96 deviations.
const MISSED = 3.69;
const SEEN = 0.874;
const SQUARE = 3.84;

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
    return `Before: ${before} After: ${after}${kind}${smallestGrowthText(app)}`;
  }
  const error = totalError(app);
  const sure = error == null ? ''
    : ` The total is right within ${shareText(error)} in 19 of 20 recordings.`;
  return sentence(periods[0]) + sure + smallestGrowthText(app);
}

// Returns the smallest growths that a comparison shows, as heapprof diff has them: of a function
// that held nothing before, and of the total; 0 if it is not known. Returns null if both sides are
// exact, or if there is no comparison.
export function smallestGrowth({ profile, model }) {
  const { before, after, measure } = model.question;
  if (!model.isDiff) return null;
  const sides = [before, after].map(at => {
    const { period, error } = profile.snapshots[at];
    const isSampled = period > 1;
    const total = Math.abs(totalOf(profile, at, measure.index));
    const share = error?.[measure.index];
    return {
      period: isSampled ? period : 0,
      error: !isSampled || total === 0 ? 0 : share == null ? NaN : share * total,
    };
  });
  const [{ period: earlier }, { period: later }] = sides;
  if (!earlier && !later) return null;
  const isBytes = profile.isHeap && measure.kind === 'space';
  const error = Math.hypot(...sides.map(side => side.error));
  // A growth is sampled, too, so it adds to the error. Objects have no period.
  const own = isBytes ? SQUARE * later / 2 : 0;
  return {
    row: !isBytes || !(error >= 0) ? 0 : earlier ? MISSED * earlier + SEEN * later : later,
    total: error ? own + Math.hypot(own, error) : 0,
  };
}

function smallestGrowthText(app) {
  const growth = smallestGrowth(app);
  if (!growth) return '';
  const write = value => {
    const { unit } = app.model.question.measure;
    return unit === 'bytes' ? roundBytesText(roundedUp(value)) : valueText(unit, Math.ceil(value));
  };
  const { row, total } = growth;
  const words = row && total > row ? `about ${write(row)} in a function, or ${write(total)} in all,`
    : row || total ? `about ${write(row || total)}` : '';
  return words ? ` A growth of less than ${words} would not show.`
    : ' A small growth would not show.';
}

// Rounds bytes up to whole units, or to halves of a unit below ten.
function roundedUp(bytes) {
  let step = 1;
  while (bytes / step >= 1024) step *= 1024;
  if (bytes / step < 10) step = Math.max(1, step / 2);
  return Math.ceil(bytes / step) * step;
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
