// Compares numbers that the page writes for people with exact ones.

const SCALES = {
  bytes: { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 },
  count: { '': 1, k: 1e3, M: 1e6, G: 1e9 },
  nanoseconds: { ns: 1, 'µs': 1e3, ms: 1e6, s: 1e9, min: 6e10 },
  ms: { ms: 1, s: 1e3, min: 6e4, h: 3.6e6 },
  '%': { '%': 1 },
};

const WRITTEN = /^[▲▼ ]*([+−]?)([\d.]+) ?(B|KiB|MiB|GiB|[kMG]|ns|µs|ms|s|min|h|%)?/;

// Whether `said`, such as `48.1 MiB`, is `value` rounded to the digits that it shows.
export function isText(said, value, unit) {
  if (said?.startsWith('<0.1 %')) return value > 0 && value < 0.1;
  const found = said?.trim().match(WRITTEN);
  if (!found) return false;
  const [, sign, digits, suffix = ''] = found;
  const scale = SCALES[unit]?.[suffix];
  if (!scale) return false;
  const decimals = digits.split('.')[1]?.length || 0;
  const least = 0.5000001 * 10 ** -decimals * scale;
  return Math.abs((sign === '−' ? -1 : 1) * Number(digits) * scale - value) <= least + 1e-9;
}

// Which unit a sample type is written in.
export function unitOf(type) {
  return type.endsWith('_objects') ? 'count' : 'bytes';
}
