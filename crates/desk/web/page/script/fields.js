// Makes the three fields for patterns. They are made once, so that typing is never disturbed.

import { el } from './dom.js';

const TYPE_MS = 180;

// Makes {search, focus, ignore}. Typing in one tells the app; a bad pattern is explained below it.
export function makeFields(app) {
  const timers = { focus: 0, ignore: 0 };
  const filter = name => text => {
    clearTimeout(timers[name]);
    timers[name] = setTimeout(() => app.change({ [name]: text, zoom: [] }), TYPE_MS);
  };
  return {
    search: makeField('search', 'Search  /', 'Search functions, regexp', text => app.search(text)),
    focus: makeField('focus', 'focus regexp', 'Keep stacks that match this regexp',
      filter('focus')),
    ignore: makeField('ignore', 'ignore regexp', 'Leave out stacks that match this regexp',
      filter('ignore')),
  };
}

// Brings a field up to date: its text, unless the user is in it, and what is wrong with it.
export function showField(field, text, error) {
  const isIn = document.activeElement === field.input;
  if (!isIn && field.input.value !== text) field.input.value = text;
  field.input.classList.toggle('bad', Boolean(error));
  field.input.setAttribute('aria-invalid', String(Boolean(error)));
  field.input.title = error || '';
  field.message.textContent = error || '';
  field.message.hidden = !error;
}

function makeField(id, placeholder, label, typed) {
  const message = el('span', { cls: 'wrong', id: id + '-wrong', role: 'alert', hidden: true });
  const input = el('input', {
    id, placeholder, 'aria-label': label, 'aria-describedby': id + '-wrong', tid: id,
    spellcheck: 'false', autocomplete: 'off', oninput: event => typed(event.target.value),
  });
  return { input, message, box: el('span', { cls: 'field' }, input, message) };
}
