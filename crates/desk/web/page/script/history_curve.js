// Draws the curve of a single recording: what the heap and the process held over time.

import { clearedCanvas } from './canvas.js';
import {
  areaLine, markPoint, pointsOf, residentLabel, residentLine, timeAxis, valueGrid,
} from './chart.js';
import { el, fill } from './dom.js';
import { bytesText, countText, sinceText } from './format.js';
import { factTable, hideTip, showTip } from './tip.js';
import { nearestSnapshot, timeScale } from './timeline_paint.js';

// Puts the curve into the view. Returns a function that paints it.
export function drawHistory(app, host) {
  const { history } = app.profile.head;
  const words = historyWords(app, history);
  const canvas = el('canvas', { tid: 'timeline-canvas', role: 'img', 'aria-label': words });
  const box = el('div', { cls: 'scroll' }, canvas);
  const note = el('div', { cls: 'lgd' }, el('span', { cls: 'where', tid: 'history-note' },
    'The collector kept this curve of the whole process. There is one snapshot, so functions ' +
    'over time are not known; heapprof record --interval 1s takes several.'));
  fill(host, box, note);
  canvas.addEventListener('mousemove', event => readout(history, canvas, box, event));
  canvas.addEventListener('mouseleave', hideTip);
  return () => {
    const height = box.clientHeight - note.offsetHeight - 16;
    paintHistory(app, history, canvas, box.clientWidth, height);
  };
}

function paintHistory(app, history, canvas, width, height) {
  const { inks } = app.palette;
  const context = clearedCanvas(canvas, width, height);
  const scale = timeScale(history.t, width);
  const showsObjects = app.state.kind === 'objects' && history.objects;
  const values = showsObjects ? history.objects : history.inuse;
  const resident = showsObjects ? [] : (history.rss || []).map(value => value < 0 ? null : value);
  const hasResident = resident.some(value => value != null);
  const peak = showsObjects ? null : history.peak;
  const most = 1.06 * Math.max(...values, ...resident.map(value => value || 0), peak?.bytes || 1);
  const title = (showsObjects ? 'Objects in use' : 'Heap in use') + (hasResident ? ' and RSS'
    : showsObjects ? '' : ' (RSS not recorded)');
  const frame = { ...scale, top: 34, bottom: height - 24, inks };
  const write = showsObjects ? countText : bytesText;
  const { xAt } = scale;
  const grid = { ...frame, most, title, write, isBytes: !showsObjects };
  const { yOf, room } = valueGrid(context, grid);
  areaLine(context, values, xAt, yOf, inks);
  if (hasResident) residentLine(context, resident, xAt, yOf, inks);
  for (const line of [values, resident]) room.avoid(pointsOf(line, xAt, yOf));
  if (peak && scale.end > 0) {
    const at = `peak ${bytesText(peak.bytes)} at ${sinceText(peak.t)}`;
    const x = scale.xOf(Math.min(peak.t, scale.end));
    markPoint(context, x, yOf(peak.bytes), at, { room, inks });
  }
  const says = value => 'RSS ' + bytesText(value);
  residentLabel(context, resident, xAt, yOf, says, { room, inks });
  if (scale.end > 0) timeAxis(context, { ...frame, y: height - 9 });
}

function readout(history, canvas, box, event) {
  const x = event.clientX - canvas.getBoundingClientRect().left;
  const i = nearestSnapshot(history.t, timeScale(history.t, box.clientWidth), x);
  const rss = history.rss?.[i];
  showTip(event, el('div', { cls: 'fn' }, sinceText(history.t[i])), factTable([
    ['heap in use', bytesText(history.inuse[i])],
    history.objects && ['objects', countText(history.objects[i])],
    rss >= 0 && ['RSS', bytesText(rss)],
  ]));
}

function historyWords(app, history) {
  const last = history.t.length - 1;
  const peak = history.peak
    ? `, with a peak of ${bytesText(history.peak.bytes)} at ${sinceText(history.peak.t)}` : '';
  return `Heap in use over ${sinceText(history.t[last])}: from ${bytesText(history.inuse[0])} to ` +
    bytesText(history.inuse[last]) + peak;
}
