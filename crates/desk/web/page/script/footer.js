// The last row: how large the profile is, what was left out, and the keys.

import { byId, el, fill } from './dom.js';
import { valueText, wholeText } from './format.js';
import { visibleText } from './text.js';

// Fills the footer.
export function drawFooter(app) {
  const { profile } = app;
  const size = `${wholeText(profile.nodes.count)} nodes, ${leftOutText(app)} · ` +
    `${wholeText(profile.functionCount)} functions`;
  const key = (name, words) => [el('kbd', {}, name), ` ${words}  `];
  fill(byId('foot'), el('span', {}, size), el('span', { cls: 'grow' }),
    el('span', {}, key('/', 'search'), key('P', 'pivot'), key('Esc', 'back'), key('?', 'keys')),
    el('span', {}, visibleText(profile.head.tool || 'heapprof')));
}

// Says how many nodes stand for what was left out. How much they hold is known of the last snapshot.
function leftOutText(app) {
  const { profile, model } = app;
  const { nodes, value } = profile.head.left_out || {};
  if (!nodes) return 'nothing left out';
  const { after, measure } = model.question;
  const amount = after === profile.snapshots.length - 1 && value?.[measure.index];
  const held = amount ? ` with ${valueText(measure.unit, amount)}` : '';
  return `${wholeText(nodes)} of them (other)${held}`;
}
