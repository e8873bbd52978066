// Writes numbers, sizes and times as people read them.

const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
const TIME_UNITS = [[1e3, 'µs'], [1e6, 'ms'], [1e9, 's']];
const IN_NANOSECONDS = { nanoseconds: 1, microseconds: 1e3, milliseconds: 1e6, seconds: 1e9 };

// Writes bytes with three digits: `48.1 MiB`.
export function bytesText(value) {
  let rest = Math.abs(value);
  let unit = 0;
  while (rest >= 1023.5 && unit < BYTE_UNITS.length - 1) {
    rest /= 1024;
    unit++;
  }
  const digits = unit === 0 ? String(Math.round(rest)) : threeDigits(rest);
  return minus(value) + digits + ' ' + BYTE_UNITS[unit];
}

// Writes a count: as it is up to 9999, then with k, M or G.
export function countText(value) {
  const size = Math.abs(value);
  if (size < 1e4) return minus(value) + Math.round(size);
  if (size < 999950) return minus(value) + (size / 1e3).toFixed(1) + ' k';
  if (size < 999.995e6) return minus(value) + (size / 1e6).toFixed(2) + ' M';
  return minus(value) + (size / 1e9).toFixed(2) + ' G';
}

// Writes a span of time that is given in nanoseconds.
export function nanosecondsText(value) {
  const size = Math.abs(value);
  if (size < 1e3) return minus(value) + Math.round(size) + ' ns';
  const [step, unit] = TIME_UNITS.findLast(([least]) => size >= least * 0.9995) || TIME_UNITS[0];
  if (unit === 's' && size >= 120e9) return minus(value) + (size / 6e10).toFixed(1) + ' min';
  return minus(value) + threeDigits(size / step) + ' ' + unit;
}

// Writes a value of a sample type, whose unit may be anything.
export function valueText(unit, value) {
  if (unit === 'bytes') return bytesText(value);
  if (unit === 'count') return countText(value);
  const scale = IN_NANOSECONDS[unit];
  return scale ? nanosecondsText(value * scale) : countText(value) + ' ' + unit;
}

// Writes a share: `21.9 %`, `<0.1 %`, `–` if there is nothing to share.
export function shareText(share) {
  if (!isFinite(share)) return '–';
  if (share === 0) return '0 %';
  const size = Math.abs(share);
  if (size < 0.0005) return share < 0 ? '>−0.1 %' : '<0.1 %';
  return minus(share) + (size * 100).toFixed(size < 0.9995 ? 1 : 0) + ' %';
}

// Writes milliseconds since the start.
export function sinceText(ms) {
  if (ms < 1000) return Math.round(ms) + ' ms';
  if (ms < 120e3) return (ms / 1e3).toFixed(1) + ' s';
  if (ms < 7.2e6) return (ms / 6e4).toFixed(1) + ' min';
  return (ms / 3.6e6).toFixed(1) + ' h';
}

// Writes a difference with its sign, also a plus.
export function signed(write, difference) {
  return (difference > 0 ? '+' : '') + write(difference);
}

// Writes a moment in UTC, from milliseconds since 1970.
export function momentText(ms) {
  if (!ms) return 'time not recorded';
  return new Date(ms).toISOString().slice(0, 16).replace('T', ' ') + ' UTC';
}

// Writes a whole number with commas.
export function wholeText(value) {
  return value.toLocaleString('en');
}

// Writes a size without zeros after the point: `4 KiB`.
export function roundBytesText(value) {
  return bytesText(value).replace(/\.0+(?= )/, '').replace(/(\.\d*?)0+(?= )/, '$1');
}

function threeDigits(value) {
  if (value < 9.995) return value.toFixed(2);
  return value < 99.95 ? value.toFixed(1) : value.toFixed(0);
}

function minus(value) {
  return value < 0 ? '−' : '';
}
