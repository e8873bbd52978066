// The keys that work everywhere on the page.

import { hasAssembly } from './assembly.js';
import { byId } from './dom.js';
import { isDiff } from './state.js';

// Listens to keys. No key works while a field has the focus, except Escape.
export function listenToKeys(app, views) {
  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector('dialog[open]') || !app.model) return;
    const isField = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === 'Escape') leave(app, event, isField);
    else if (!isField) act(app, views, event);
  });
}

function act(app, views, event) {
  const there = views.filter(view => view.isThere?.(app) ?? true);
  const number = '1234567'.indexOf(event.key);
  if (event.key.length === 1 && number >= 0 && there[number]) {
    app.change({ view: there[number].id });
    return;
  }
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const action = keyActions(app)[key];
  if (action) {
    if (key === '/') event.preventDefault();
    action();
    return;
  }
  const view = views.find(known => known.id === app.state.view);
  const here = document.activeElement;
  const isFree = here === document.body || byId('view').contains(here);
  if (isFree) view.keys(event);
}

function keyActions(app) {
  const { state } = app;
  return {
    '/': () => app.startSearch(),
    p: () => state.selected >= 0 && app.pivotOn(state.selected),
    i: () => app.change({ inverted: !state.inverted, pivot: -1, zoom: [], view: 'flame' }),
    f: () => app.change({ flipped: !state.flipped }),
    l: () => app.toggleLines(),
    o: () => app.toggleOwn(),
    b: () => app.otherKind(),
    s: () => app.toggleSql(),
    a: () => hasAssembly(app, state.selected) && app.toggleAssembly(),
    t: () => app.toggleTheme(),
    '?': () => app.help(),
  };
}

// Goes one step back: the field, then search, pivot, zoom, selection, comparison.
function leave(app, event, isField) {
  if (isField) {
    leaveField(event.target);
    return;
  }
  const { state, profile } = app;
  if (state.search) app.change({ search: '' });
  else if (state.pivot >= 0) app.change({ pivot: -1 });
  else if (state.zoom.length) app.change({ zoom: state.zoom.slice(0, -1) });
  else if (state.selected >= 0) app.select(-1);
  else if (state.module >= 0) app.change({ module: -1 });
  else if (isDiff(state) && profile.snapshots.length > 2) app.change({ before: -1 });
}

function leaveField(field) {
  if (field.tagName === 'INPUT' && field.value) {
    field.value = '';
    field.dispatchEvent(new Event('input'));
  } else {
    field.blur();
  }
}
