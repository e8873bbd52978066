// Starts the page: loads the profile, makes the views, and says so if that fails.

import { makeApp } from './app.js';
import { byId, el, fill } from './dom.js';
import { makeFlameView } from './flame.js';
import { makeForksView } from './forks.js';
import { makeGrowthView } from './growth.js';
import { listenToKeys } from './keyboard.js';
import { goLive } from './live.js';
import { makeFileSource } from './load_file.js';
import { makeWebSource } from './load_web.js';
import { readState, firstQuestion } from './state.js';
import { makeSummaryView } from './summary.js';
import { makeTableView } from './table.js';
import { makeTimelineView } from './timeline.js';
import { makeTreemapView } from './treemap.js';

// The script stands before the data, so that a cut-off file still has it. It waits for the rest.
async function start() {
  const started = performance.now();
  const perf = {};
  const { dataset } = document.documentElement;
  dataset.theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  if (document.readyState === 'loading') {
    await new Promise(done => addEventListener('DOMContentLoaded', done, { once: true }));
  }
  const source = makeWebSource(document, location) || makeFileSource();
  const question = firstQuestion(location.hash.slice(1));
  const container = await loadOrExplain(source, question);
  if (!container) return;
  perf.decode = performance.now() - started;
  const app = openPage(source, container, perf);
  if (source.isLive) goLive(app, question);
  perf.ready = performance.now() - started;
  perf.page = performance.now();
}

async function loadOrExplain(source, question) {
  try {
    return await source.load(question);
  } catch (error) {
    showFailure(source, error);
    return null;
  }
}

function openPage(source, container, perf) {
  const views = [
    makeFlameView(), makeTableView(), makeTreemapView(), makeSummaryView(), makeTimelineView(),
    makeGrowthView(), makeForksView(),
  ];
  const app = makeApp(source, views, perf);
  app.take(container, location.hash.slice(1));
  listenToKeys(app, views);
  listenToWindow(app);
  return app;
}

function listenToWindow(app) {
  const resize = () => app.view?.resize?.(app);
  const redraw = () => {
    app.applyTheme();
    app.update(true);
  };
  new ResizeObserver(() => requestAnimationFrame(resize)).observe(byId('view'));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  matchMedia('print').addEventListener('change', redraw);
  addEventListener('pagehide', () => app.saveNow());
  // The event's address counts, because a late save may have changed that of the page since.
  addEventListener('hashchange', ({ newURL }) => {
    app.state = readState(app.profile, newURL.split('#')[1]);
    redraw();
    app.onQuestion?.();
  });
  byId('skip').addEventListener('click', event => {
    event.preventDefault();
    byId('view').focus();
  });
}

// Says why there is no report, and what would help.
function showFailure(source, error) {
  byId('side').hidden = true;
  const words = source.isLive ? `heapprof web did not answer: ${error.message}.`
    : `The data in this file are cut off or of another version: ${error.message}. Ask for the ` +
      'file again, or run heapprof report on the profile.';
  fill(byId('view'), el('div', { cls: 'empty', tid: 'error', role: 'alert' },
    el('b', {}, 'This report cannot be read'), el('span', {}, words)));
  document.documentElement.dataset.ready = 'failed';
}

start();
