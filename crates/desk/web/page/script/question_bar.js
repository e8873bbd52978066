// The second row: the tabs, and the question that all views answer.

import { button, byId, el, fill, segments } from './dom.js';
import { showField } from './fields.js';
import { shareText } from './format.js';
import { kindLabel, kindsOf, measureOf } from './measures.js';

// Fills the row with tabs and questions.
export function drawQuestionBar(app, views) {
  const { fields, patterns, state } = app;
  showField(fields.focus, state.focus, patterns.focus.error);
  showField(fields.ignore, state.ignore, patterns.ignore.error);
  fill(byId('bar'), tabs(app, views),
    el('div', { cls: 'q' }, families(app), kinds(app), fields.focus.box, fields.ignore.box,
      ownCode(app), shown(app)));
}

function tabs(app, all) {
  const views = all.filter(view => view.isThere?.(app) ?? true);
  const move = (i, event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    app.change({ view: views[(i + step + views.length) % views.length].id });
    document.querySelector('[role=tab][aria-selected=true]').focus();
  };
  const tab = (view, i) => {
    const isCurrent = app.state.view === view.id;
    const isEmpty = view.isEmpty?.(app);
    return el('button', {
      role: 'tab', type: 'button', id: 'tab-' + view.id, tid: 'tab-' + view.id,
      'aria-controls': 'view', 'aria-selected': String(isCurrent), tabindex: isCurrent ? 0 : -1,
      cls: isEmpty ? 'off' : null, title: `${view.title} (${i + 1})`,
      onclick: () => app.change({ view: view.id }), onkeydown: event => move(i, event),
    }, view.title);
  };
  return el('div', { role: 'tablist', 'aria-label': 'Views' }, views.map(tab));
}

function families(app) {
  const { measures } = app.profile;
  const { family, kind } = app.state;
  const items = measures.families.map(known => [known.key, known.label, known.title]);
  const choose = key => {
    const measure = measureOf(measures, key, kind);
    app.change({ family: key, kind: measure.kind });
  };
  return segments('What is measured', items, family, choose);
}

function kinds(app) {
  const { measures } = app.profile;
  const { family, kind } = app.state;
  const offered = kindsOf(measures.families.find(known => known.key === family));
  if (offered.length < 2) return null;
  const items = offered.map(measure => [measure.kind, kindLabel(measure)]);
  return segments('Bytes or objects', items, kind, key => app.change({ kind: key }));
}

function ownCode(app) {
  if (!app.profile.isLibrary.some(Boolean)) return null;
  const title = 'What libraries (std, runtime, libc) allocate is attributed to the nearest ' +
    'caller in your own code (O). Without it, the page shows all code, as heapprof top ' +
    '--all-code does.';
  return button('Own code', app.state.own, () => app.toggleOwn(), { title, tid: 'fold' });
}

// Says how much of the profile the filters leave.
function shown(app) {
  const { tree, whole } = app.model;
  const share = tree.weight.after[0] / whole.after;
  const text = `shown ${shareText(share)}`;
  return el('div', { cls: 'share', tid: 'share', 'data-share': share },
    el('span', {}, text),
    el('div', { cls: 'meter', 'aria-hidden': 'true' },
      el('i', { css: { width: Math.min(100, 100 * share || 0) + '%' } })));
}
