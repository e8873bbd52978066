// Owns the profile, the state and the model, and draws the page after each change.

import { drawAssembly } from './assembly.js';
import { makePalette, moduleWeights } from './colour.js';
import { byId, fill } from './dom.js';
import { makeFields, showField } from './fields.js';
import { keepFocus } from './focus.js';
import { drawFooter } from './footer.js';
import { valueText } from './format.js';
import { drawHeader } from './header.js';
import { showHelp } from './help.js';
import { companionOf, measureOf } from './measures.js';
import { buildModel } from './model.js';
import { makeNames } from './names.js';
import { noData } from './nothing.js';
import { drawPanel } from './panel.js';
import { readPattern } from './pattern.js';
import { readProfile } from './profile.js';
import { drawQuestionBar } from './question_bar.js';
import { drawSql } from './sql_drawer.js';
import { isDiff, readState, writeState } from './state.js';
import { visibleText } from './text.js';
import { hideTip } from './tip.js';
import { drawTools } from './tools.js';

const SAVE_MS = 120;

// Makes the app. Everything that changes is a field of it, and only its functions change them.
export function makeApp(source, views, perf) {
  const app = {
    source, views, perf, profile: null, state: null, model: null, names: null,
    palette: null, part: null, profiles: null, view: null, fields: null,
    patterns: {}, timers: { save: 0 }, queue: [], onQuestion: null, assembly: null,
  };
  app.fields = makeFields(app);
  Object.assign(app, readers(app), changers(app), drawers(app));
  return app;
}

// Functions that tell something and change nothing.
function readers(app) {
  return {
    write: value => valueText(app.model.question.measure.unit, value),
    // Returns what shares are of: the whole profile, in a comparison the larger of both.
    whole: () => Math.max(app.model.whole.after, app.model.whole.before) || 1,
    moduleText: m => visibleText(app.profile.moduleName[m]),
    familyLabel: measure =>
      app.profile.measures.families.find(({ key }) => key === measure.family).label,
    measure: () => measureOf(app.profile.measures, app.state.family, app.state.kind),
    // Returns the question that a server answers. It sends all types, with all code.
    question: () => ({ focus: app.state.focus, ignore: app.state.ignore }),
  };
}

// Functions that change what the user chose.
function changers(app) {
  return {
    change(patch) {
      Object.assign(app.state, patch);
      app.update();
      if (app.onQuestion) app.onQuestion();
    },
    select(f) {
      app.state.selected = f;
      const restore = keepFocus();
      drawPanel(app);
      app.view?.mark?.(app);
      drawSql(app);
      restore();
      drawAssembly(app);
      app.saved();
    },
    search(text) {
      app.state.search = text;
      app.patterns.search = readPattern(text);
      showField(app.fields.search, text, app.patterns.search.error);
      app.view.search?.(app);
      app.saved();
    },
    startSearch() {
      if (!app.view.hasSearch) app.change({ view: 'flame' });
      app.fields.search.input.focus();
    },
    pivotOn: f => app.change({ pivot: f, selected: f, zoom: [], inverted: false, view: 'flame' }),
    toggleLines: () => app.change({ byLine: !app.state.byLine, zoom: [], view: 'flame' }),
    toggleOwn: () => app.change({ own: !app.state.own, zoom: [] }),
    otherKind() {
      const other = companionOf(app.profile.measures, app.measure());
      if (other) app.change({ kind: other.kind });
    },
    toggleTheme() {
      app.state.theme = app.palette.theme === 'dark' ? 'light' : 'dark';
      app.applyTheme();
      app.update();
    },
    toggleSql() {
      app.state.sql = !app.state.sql;
      const restore = keepFocus();
      drawSql(app);
      drawHeader(app);
      app.view.resize?.(app);
      restore();
      app.saved();
    },
    toggleAssembly() {
      app.state.assembly = !app.state.assembly;
      drawAssembly(app);
      app.saved();
    },
    openOther: () => false,
    help: showHelp,
    // Keeps the choices in the address, a little later, because browsers limit how often.
    saved() {
      clearTimeout(app.timers.save);
      app.timers.save = setTimeout(() => app.saveNow(), SAVE_MS);
    },
    saveNow() {
      history.replaceState(null, '', '#' + writeState(app.profile, app.state));
    },
  };
}

// Functions that draw.
function drawers(app) {
  return {
    // Takes a profile in. Choices stay, because they are read again by name.
    take(container, text) {
      const kept = text ?? writeState(app.profile, app.state);
      app.profile = readProfile(container);
      app.names = makeNames(app.profile);
      app.state = readState(app.profile, kept);
      app.model = null;
      buildIfNeeded(app);
      const weights = moduleWeights(app.profile, app.model);
      app.palette = makePalette(app.profile, weights, app.palette);
      app.applyTheme();
      app.update(true);
    },
    update(keepScroll) {
      const started = performance.now();
      const restore = keepFocus();
      buildIfNeeded(app);
      drawHeader(app);
      drawQuestionBar(app, app.views);
      drawFooter(app);
      drawSql(app);
      drawPanel(app);
      drawView(app, keepScroll);
      restore();
      drawAssembly(app);
      app.saved();
      app.say(`${app.familyLabel(app.measure())}, ${app.write(app.model.total.after)} shown`);
      app.perf.update = performance.now() - started;
      app.later(() => {});
    },
    redrawTools() {
      const restore = keepFocus();
      showField(app.fields.search, app.state.search, app.patterns.search.error);
      drawTools(app, app.view);
      restore();
    },
    applyTheme() {
      const isPrinted = matchMedia('print').matches;
      const isDark = matchMedia('(prefers-color-scheme: dark)').matches;
      const theme = isPrinted ? 'light' : app.state.theme || (isDark ? 'dark' : 'light');
      app.palette.setTheme(theme);
      document.documentElement.dataset.theme = theme;
    },
    say(text) {
      byId('live').textContent = text;
    },
    // Runs something after the next paint, then tells tests that the page is ready.
    later(act) {
      app.queue.push(act);
      if (app.queue.length > 1) return;
      const run = () => setTimeout(() => runQueue(app), 0);
      if (document.hidden) run();
      else requestAnimationFrame(run);
    },
  };
}

function buildIfNeeded(app) {
  const { state, profile } = app;
  app.patterns = {
    search: readPattern(state.search),
    focus: readPattern(state.focus),
    ignore: readPattern(state.ignore),
  };
  // A server has filtered already, by its own reading of the patterns.
  const filter = app.source.isLive ? { focus: null, ignore: null }
    : { focus: app.patterns.focus.regex, ignore: app.patterns.ignore.regex };
  const measure = app.measure();
  const question = {
    measure, companion: companionOf(profile.measures, measure), own: state.own, ...filter,
    after: state.after, before: isDiff(state) ? state.before : -1,
  };
  if (app.model && isSameQuestion(app.model.question, question)) return;
  const started = performance.now();
  app.model = buildModel(profile, question);
  app.perf.build = performance.now() - started;
}

function isSameQuestion(a, b) {
  const same = ['measure', 'own', 'after', 'before'].every(key => a[key] === b[key]);
  return same && String(a.focus) === String(b.focus) && String(a.ignore) === String(b.ignore);
}

function drawView(app, keepScroll) {
  const host = byId('view');
  const isChosen = view => view.id === app.state.view && (view.isThere?.(app) ?? true);
  const next = app.views.find(isChosen) || app.views[0];
  app.state.view = next.id;
  hideTip();
  const isSame = app.view === next;
  const scrolled = keepScroll && isSame ? host.querySelector('.scroll')?.scrollTop : 0;
  if (app.view && !isSame) app.view.destroy();
  app.view = next;
  app.redrawTools();
  host.setAttribute('aria-labelledby', 'tab-' + next.id);
  const nothing = next.allowsNothing ? null : noData(app);
  if (nothing) {
    next.destroy();
    fill(host, nothing);
  } else {
    next.draw(app, host);
  }
  const scroll = host.querySelector('.scroll');
  if (scrolled && scroll) scroll.scrollTop = scrolled;
}

function runQueue(app) {
  const { perf, queue } = app;
  const root = document.documentElement;
  if (perf.painted == null) perf.painted = performance.now();
  for (const act of queue.splice(0)) act();
  if (performance.memory) perf.heapMB = performance.memory.usedJSHeapSize / 1048576;
  root.dataset.perf = JSON.stringify(perf);
  root.dataset.ready = '1';
}
