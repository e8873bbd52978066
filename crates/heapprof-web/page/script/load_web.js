// Loads the profile from `heapprof web`, which answers the questions of the page.

import { openContainer } from './decode.js';

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
  const chosen = { profile: asked.profile, base: asked.base };
  const seen = { tag: null, notes: '' };
  const get = (path, extra, tag) => ask(api + path, { ...asked, ...extra }, tag);
  return {
    isLive: true,
    // What the server had to say beside its last answer.
    notes: () => seen.notes,
    refreshMs: Number(meta('heapprof-refresh')) || 0,
    chosen,
    // Returns the container that answers a question, or null if nothing is new since `onlyNews`.
    async load(question, onlyNews) {
      const response = await get('/report', reportQuestion(question), onlyNews && seen.tag);
      if (response.status === 304) return null;
      seen.tag = response.headers.get('ETag');
      seen.notes = JSON.parse(response.headers.get('heapprof-notes') || '[]').join('; ');
      return openContainer(await response.arrayBuffer());
    },
    // Returns what "(other)" stands for. The path is function names from the root, without it.
    async askSubtree(nodePath, question) {
      const extra = { ...reportQuestion(question), path: JSON.stringify(nodePath) };
      return openContainer(await (await get('/subtree', extra)).arrayBuffer());
    },
    // Returns the profiles that the server has: [{name, title}].
    async profiles() {
      const { profiles, shown } = await (await get('/profiles')).json();
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

async function ask(address, parts, tag) {
  const headers = tag ? { 'If-None-Match': tag } : {};
  const response = await fetch(address + '?' + query(parts), { headers, cache: 'no-store' });
  if (response.ok || response.status === 304) return response;
  const answer = await response.json().catch(() => ({}));
  const { what, cause, help } = answer.error || {};
  throw new ServerError(what || `The server answered ${response.status}`, cause, help);
}
