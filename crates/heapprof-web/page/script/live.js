// Keeps a page of `heapprof web` up to date: it asks again when the question or the data change.

import { pathOf } from './call_tree.js';
import { byId, fill } from './dom.js';

const ASK_MS = 150;

// Connects the app to its server.
export function goLive(app) {
  const live = { asked: JSON.stringify(app.question()), turn: 0, timer: 0, whole: null };
  app.onQuestion = () => {
    const now = JSON.stringify(app.question());
    if (now === live.asked) return;
    clearTimeout(live.timer);
    live.timer = setTimeout(() => askAgain(app, live, false), ASK_MS);
  };
  app.openOther = (tree, node) => openOther(app, live, tree, node);
  app.leavePart = () => {
    app.part = null;
    askAgain(app, live, false);
  };
  loadProfiles(app);
  showBanner(app.source.notes());
  if (app.source.refreshMs > 0) {
    setInterval(() => app.part || askAgain(app, live, true), app.source.refreshMs);
  }
}

// Shows a message above the view until the next answer arrives.
export function showBanner(words) {
  const banner = byId('banner');
  fill(banner, words || '');
  banner.hidden = !words;
}

// Asks for the report. An answer to an older question is thrown away.
async function askAgain(app, live, onlyNews) {
  const turn = ++live.turn;
  const question = app.question();
  try {
    const container = await app.source.load(question, onlyNews);
    if (turn !== live.turn) return;
    live.asked = JSON.stringify(question);
    showBanner(app.source.notes());
    if (container) app.take(container);
  } catch (error) {
    if (turn === live.turn) showBanner(whatFailed(error));
  }
}

// Opens what "(other)" stands for. Returns false if a node is not such a one.
function openOther(app, live, tree, node) {
  const { profile, state } = app;
  const f = tree.func[node];
  if (f < 0 || !profile.isOther(f) || state.inverted || state.pivot >= 0) return false;
  const path = pathOf(tree, node).slice(0, -1).map(g => profile.functionName[g]);
  askPart(app, live, path);
  return true;
}

async function askPart(app, live, path) {
  const turn = ++live.turn;
  try {
    const container = await app.source.askSubtree(path, app.question());
    if (turn !== live.turn) return;
    app.part = [app.names.full(-1), ...path].slice(-2).join(' › ');
    app.state.zoom = [];
    app.take(container);
  } catch (error) {
    showBanner(whatFailed(error));
  }
}

async function loadProfiles(app) {
  try {
    app.profiles = await app.source.profiles();
    app.update();
  } catch {
    app.profiles = null;
  }
}

function whatFailed(error) {
  return error.isAnswer ? error.message
    : 'heapprof web does not answer any more. What you see is the last that it sent.';
}
