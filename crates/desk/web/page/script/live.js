// Keeps a page of `heapprof web` up to date: it asks again when the question or the data change.

import { byId, fill } from './dom.js';
import { niceForm, shortForms } from './names.js';
import { visibleText } from './text.js';

const ASK_MS = 150;
const LONGEST = 40;

// Connects the app to its server, which has answered `question`. `live.shown` is the question that
// the data answer, and `live.asking` the one that is under way, both as text.
export function goLive(app, question) {
  const live = { shown: textOf(question), asking: null, abort: null, timer: 0 };
  app.onQuestion = () => follow(app, live);
  app.openOther = (tree, node) => openOther(app, live, tree, node);
  app.openPart = chain => askFor(app, live, chain);
  loadProfiles(app);
  showBanner(app.source.notes());
  if (app.source.refreshMs > 0) {
    setInterval(() => app.part || live.asking || askFor(app, live, [], true), app.source.refreshMs);
  }
  follow(app, live);
}

// Shows a message above the view until the next answer arrives.
export function showBanner(words) {
  const banner = byId('banner');
  fill(banner, words || '');
  banner.hidden = !words;
}

// Asks for what the fields say, unless it is shown or under way already. Another question leaves
// the part that is open, because its path may be gone.
function follow(app, live) {
  const wanted = textOf(app.question());
  if (wanted === live.asking) return;
  stop(live);
  if (wanted === live.shown) {
    showBanner(app.source.notes());
    return;
  }
  setAsking(live, wanted);
  live.timer = setTimeout(() => askFor(app, live, []), ASK_MS);
}

// Ends what is under way, so that the server need not go on with it.
function stop(live) {
  clearTimeout(live.timer);
  live.abort?.abort();
  setAsking(live, null);
}

function setAsking(live, question) {
  live.asking = question;
  byId('view').setAttribute('aria-busy', String(question != null));
}

// Asks for the report, or for what the last "(other)" of a chain stands for. Each path of the chain
// leads to one, within the part that the one before opened.
async function askFor(app, live, chain, onlyNews) {
  stop(live);
  const { signal } = live.abort = new AbortController();
  const question = app.question();
  const asking = textOf(question);
  setAsking(live, asking);
  try {
    const container = chain.length ? await app.source.askSubtree(chain, question, signal)
      : await app.source.load(question, onlyNews, signal);
    if (signal.aborted) return;
    live.shown = asking;
    if (container) take(app, container, chain);
    setAsking(live, null);
    follow(app, live);
  } catch (error) {
    if (signal.aborted) return;
    setAsking(live, null);
    showBanner(whatFailed(error));
  }
}

function take(app, container, chain) {
  if (chain.length || app.part) app.state.zoom = [];
  const alone = key => key.replace(/\n.*$/s, '');
  const names = [app.profile.program, ...(chain.at(-1) || []).map(alone)].slice(-2);
  const title = names.map(name => niceForm(shortForms(visibleText(name)), LONGEST)).join(' › ');
  app.part = chain.length ? { chain, title } : null;
  app.take(container);
}

// Opens what "(other)" stands for. Returns false if a node is not such a one.
function openOther(app, live, tree, node) {
  const { profile, state } = app;
  const f = tree.func[node];
  if (f < 0 || !profile.isOther(f) || state.inverted || state.pivot >= 0) return false;
  const path = callersOf(profile, tree.nodeToTree.indexOf(node)).map(app.names.key);
  // While another question is under way, the path is one of data that are about to go.
  if (textOf(app.question()) !== live.shown) follow(app, live);
  else askFor(app, live, [...app.part?.chain || [], path]);
  return true;
}

// Returns the functions from the root to the caller of a node of the profile. The tree's own path
// may be one of frames.
function callersOf({ nodes }, node) {
  const path = [];
  for (let at = nodes.parent[node]; at >= 0; at = nodes.parent[at]) path.unshift(nodes.func[at]);
  return path;
}

async function loadProfiles(app) {
  try {
    app.profiles = await app.source.profiles();
    app.update();
  } catch {
    app.profiles = null;
  }
}

function textOf({ focus, ignore }) {
  return JSON.stringify([focus || '', ignore || '']);
}

function whatFailed(error) {
  return error.isAnswer ? error.message
    : 'heapprof web no longer answers. You see the last data that it sent.';
}
