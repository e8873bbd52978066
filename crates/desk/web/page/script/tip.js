// Shows the card that follows the pointer. It never is the only place for a fact.

import { byId, el, fill } from './dom.js';

// Shows the card beside the pointer, inside the window.
export function showTip(event, ...content) {
  const card = fill(byId('tip'), ...content);
  card.hidden = false;
  const box = card.getBoundingClientRect();
  const left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8));
  const below = event.clientY + 18;
  const isBelow = below + box.height <= innerHeight;
  const top = isBelow ? below : Math.max(4, event.clientY - box.height - 12);
  card.style.setProperty('left', left + 'px');
  card.style.setProperty('top', top + 'px');
}

export function hideTip() {
  byId('tip').hidden = true;
}

// Makes a small table of [name, value] rows; rows that are null are left out.
export function factTable(rows, attributes) {
  const made = rows.filter(Boolean).map(([name, value]) =>
    el('tr', {}, el('th', { cls: 'l', scope: 'row' }, name), el('td', {}, value)));
  return el('table', { cls: 'kv', ...attributes }, el('tbody', {}, made));
}
