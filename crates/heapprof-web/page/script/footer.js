// The last row: how large the profile is, what was left out, and the keys.

import { byId, el, fill } from './dom.js';
import { valueText, wholeText } from './format.js';
import { visibleText } from './text.js';

// Fills the footer.
export function drawFooter(app) {
  const { profile } = app;
  const size = `${wholeText(profile.nodes.count)} nodes · ` +
    `${wholeText(profile.functionCount)} functions · ${leftOutText(app)}`;
  const key = (name, words) => [el('kbd', {}, name), ` ${words}  `];
  fill(byId('foot'), el('span', {}, size), el('span', { cls: 'grow' }),
    el('span', {}, key('/', 'search'), key('P', 'pivot'), key('Esc', 'back'), key('?', 'keys')),
    el('span', {}, visibleText(profile.head.tool || 'heapprof')));
}

// Says how many nodes are not in the file, and how much they hold.
export function leftOutText(app) {
  const { nodes, value } = app.profile.head.left_out || {};
  if (!nodes) return 'nothing left out';
  const { measure } = app.model.question;
  const amount = Array.isArray(value) ? value[measure.index] : value;
  const held = amount ? `, ${valueText(measure.unit, amount)},` : '';
  return `${wholeText(nodes)} small nodes${held} are in (other)`;
}
