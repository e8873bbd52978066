// Loads the profile from `heapprof web`, which answers the questions of the page.

import { openContainer } from './decode.js';

const MOST_RETRIES = 3;

// An answer of the server that says what is wrong, why, and what helps.
export class ServerError extends Error {
  constructor(what, cause, help) {
    super([what, cause, help].filter(Boolean).join('. '));
    this.isAnswer = true;
  }
}

// Returns a source if the page says where its server is, else null.
export function makeWebSource(document, location) {
  const meta = name => document.querySelector(`meta[name="${name}"]`)?.content;
  const api = meta('heapprof-api');
  if (!api) return null;
  const page = new URLSearchParams(location.search);
  const asked = { token: page.get('token'), profile: page.get('profile'), base: page.get('base') };
  const views = meta('heapprof-views');
  const chosen = { profile: asked.profile, base: asked.base };
  const seen = { tag: null, notes: '' };
  const get = (path, extra, how) => ask(`${api}${path}?${query({ ...asked, ...extra })}`, how);
  return {
    isLive: true,
    // What the server had to say beside its last answer.
    notes: () => seen.notes,
    refreshMs: Number(meta('heapprof-refresh')) || 0,
    chosen,
    // The address of pprof's views, or null.
    viewsAddress: views && `${views}?${query({ token: asked.token })}`,
    // Whether the server reads instructions from binaries.
    hasAssembly: meta('heapprof-assembly') != null,
    // Whether the server shows all its profiles unless one is chosen.
    isSeries: false,
    // Returns the container that answers a question, or null if `onlyNews` and nothing is new.
    async load(question, onlyNews, signal) {
      const headers = onlyNews && seen.tag ? { 'If-None-Match': seen.tag } : {};
      const response = await get('/report', reportQuestion(question), { headers, signal });
      if (response.status === 304) return null;
      const data = await response.arrayBuffer();
      seen.tag = response.headers.get('ETag');
      seen.notes = JSON.parse(response.headers.get('heapprof-notes') || '[]').join('; ');
      return openContainer(data);
    },
    // Returns what the last "(other)" of a chain stands for. Each path of the chain is function
    // names from the root, without "(other)".
    async askSubtree(chain, question, signal) {
      const path = JSON.stringify(chain.length > 1 ? chain : chain[0]);
      const response = await get('/subtree', { ...reportQuestion(question), path }, { signal });
      return openContainer(await response.arrayBuffer());
    },
    // Returns the lines and instructions of functions, as `heapprof list --asm -f json` does.
    async assembly(question, signal) {
      return (await get('/list', { ...question, asm: 1 }, { signal })).json();
    },
    // Returns the profiles that the server has: [{name, title}].
    async profiles() {
      const { profiles, shown } = await (await get('/profiles')).json();
      this.isSeries = !shown.profile;
      if (!chosen.profile && !chosen.base) Object.assign(chosen, shown);
      return profiles;
    },
    // Returns the address of this page for another choice of profiles.
    addressOf(profile, base) {
      return '?' + query({ ...asked, profile, base });
    },
  };
}

function reportQuestion(question) {
  return {
    focus: question.focus, ignore: question.ignore,
  };
}

function query(parts) {
  const given = Object.entries(parts).filter(([, value]) => value != null && value !== '');
  return new URLSearchParams(given).toString();
}

// Asks, and asks again if the server is too busy. `how` has headers and the signal that ends it.
async function ask(address, how, retries = MOST_RETRIES) {
  const response = await fetch(address, { ...how, cache: 'no-store' });
  if (response.ok || response.status === 304) return response;
  if (response.status === 503 && retries) {
    const seconds = Number(response.headers.get('Retry-After')) || 1;
    await new Promise(done => setTimeout(done, 1000 * seconds));
    return ask(address, how, retries - 1);
  }
  const answer = await response.json().catch(() => ({}));
  const { what, cause, help } = answer.error || {};
  throw new ServerError(what || `The server answered ${response.status}`, cause, help);
}
