// Makes the small pieces that several views show: names, chips, rows with a bar, sentences.

import { el } from './dom.js';
import { visibleText } from './text.js';

// Puts a function's name on the page; <bdi> keeps its direction to itself.
export function nameOn(app, f, length) {
  const text = length ? app.names.nice(f, length) : app.names.full(f);
  return el('bdi', { title: length ? app.names.full(f) : null }, text);
}

export function chip(colour) {
  return el('span', { cls: 'chip', 'aria-hidden': 'true', css: { background: colour } });
}

// Says where a function is: module, file and first line.
export function placeOf(app, f, isShort) {
  const { profile } = app;
  const file = visibleText(profile.fileOf(f));
  const shown = isShort ? file.replace(/^.*\/(?=[^/]+\/[^/]+$)/, '…/') : file;
  const line = profile.startOf(f) ? ':' + profile.startOf(f) : '';
  const place = file ? ' · ' + shown + line : ' · no source file';
  return el('div', { cls: 'where', title: file + line },
    chip(app.palette.of(f)), el('bdi', {}, app.moduleText(profile.moduleOf[f])),
    el('bdi', {}, place));
}

// Makes a row with a bar: a name, a value and its share. Clicking it selects the function.
export function functionRow(app, f, { value, text, note, share, colour }) {
  const bar = { '--w': barWidth(share), '--c': colour };
  const attributes = {
    cls: 'row', css: bar, title: app.names.full(f), type: 'button', onclick: () => app.select(f),
    'data-name': app.profile.functionName[f], 'data-value': value,
  };
  return el('button', attributes,
    el('span', { cls: 'n' }, el('bdi', {}, app.names.short(f, 25))),
    el('span', { cls: 'v' }, text, el('small', {}, note)));
}

// Makes a row with a bar that cannot be clicked.
export function plainRow(name, { value, text, note, share, colour, code }) {
  const bar = { '--w': barWidth(share), '--c': colour };
  return el('div', { cls: 'row', css: bar, 'data-name': name, 'data-value': value },
    el('span', { cls: 'n' }, el('bdi', {}, name), code && el('code', {}, el('bdi', {}, code))),
    el('span', { cls: 'v' }, text, el('small', {}, note)));
}

// Makes a headline of a list in the panel, with what its numbers are on the right.
export function listHead(title, unit) {
  return el('h3', {}, title, el('span', {}, unit));
}

// Makes what is shown in place of a view: a title, a sentence, commands, and a way out.
export function emptyView(app, title, sentence, commands, attributes) {
  const { focus, ignore, search } = app.state;
  const hasFilter = focus || ignore || search;
  const clear = () => app.change({ focus: '', ignore: '', search: '' });
  return el('div', { cls: 'empty', tid: 'empty', ...attributes },
    el('b', {}, title), el('span', {}, sentence),
    (commands || []).map(command => el('code', {}, command)),
    hasFilter && el('button', { onclick: clear, type: 'button' }, 'Clear the filters'));
}

function barWidth(share) {
  return isFinite(share) ? (Math.min(1, Math.abs(share)) * 100).toFixed(2) + '%' : '0';
}
