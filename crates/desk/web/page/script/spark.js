// Draws a small line of values over time.

import { svg } from './dom.js';

// Returns an SVG of values at times; it is drawn to its own scale, from 0.
export function sparkline(values, times, width, height) {
  const most = Math.max(...values, 1);
  const end = times[times.length - 1] - times[0];
  const last = Math.max(1, values.length - 1);
  const xOf = i => width * (end > 0 ? (times[i] - times[0]) / end : i / last);
  const points = values.map((value, i) =>
    xOf(i).toFixed(1) + ' ' + (height - height * Math.max(0, value) / most).toFixed(1));
  const path = 'M' + points.join('L');
  const area = path + `L${width} ${height}L0 ${height}Z`;
  const box = {
    class: 'sp', viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none',
    'aria-hidden': 'true',
  };
  return svg('svg', box, svg('path', { d: area, class: 'a' }), svg('path', { d: path }));
}
