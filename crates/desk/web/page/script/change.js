// Says what changed between two values, in words, signs and colours.

export const CHANGES = ['new', 'grown', 'shrunk', 'gone'];
export const SIGNS = { new: '▲', grown: '▲', gone: '▼', shrunk: '▼', same: '' };

const NEUTRAL = { light: [232, 235, 239], dark: [44, 51, 61] };
const MORE = { light: [213, 94, 0], dark: [213, 94, 0] };
const LESS = { light: [0, 114, 178], dark: [42, 139, 201] };
const LEAST_CHANGE = 0.01;

// Returns new, gone, grown, shrunk or same.
export function changeOf(before, after) {
  if (before === after) return 'same';
  if (before === 0) return 'new';
  if (after === 0) return 'gone';
  return after > before ? 'grown' : 'shrunk';
}

// Whether a change is large enough for a sign and a colour.
export function isMoved(before, after) {
  const change = Math.abs(after - before);
  return change > 0 && change >= LEAST_CHANGE * Math.max(Math.abs(before), Math.abs(after));
}

// Returns the colour of a change as [red, green, blue]: the stronger, the larger the change is.
export function changeColour(before, after, theme) {
  const change = after - before;
  const relative = change === 0 ? 0 : change / Math.max(Math.abs(before), Math.abs(after));
  const share = Math.min(1, Math.abs(relative));
  const amount = share < LEAST_CHANGE ? 0 : 0.12 + 0.78 * share;
  const target = (relative > 0 ? MORE : LESS)[theme];
  return NEUTRAL[theme].map((from, i) => Math.round(from + (target[i] - from) * amount));
}

// Returns black or white, whichever can be read better on a colour.
export function inkOn([red, green, blue]) {
  const light = 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  return light > 0.179 ? '#000' : '#fff';
}

// Whether the kinds that the user ticked let a change through; no kind ticked means all.
export function isTicked(kinds, before, after) {
  return !kinds || kinds.split(' ').includes(changeOf(before, after));
}

function linear(channel) {
  const part = channel / 255;
  return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
}
