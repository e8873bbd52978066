// Holds what the user chose, and keeps it in the address so that a link shows the same.
// Functions and modules are written by name, so that links survive a new profile.

import { measureOf } from './measures.js';

// Each choice: its name in the address, its name here, and how it is written.
const KEPT = [
  ['view', 'view', 'text'], ['fam', 'family', 'text'], ['unit', 'kind', 'text'],
  ['focus', 'focus', 'text'], ['ignore', 'ignore', 'text'], ['fold', 'own', 'flag'],
  ['a', 'before', 'number'], ['b', 'after', 'number'], ['sel', 'selected', 'function'],
  ['piv', 'pivot', 'function'], ['lines', 'byLine', 'flag'], ['zoom', 'zoom', 'path'],
  ['inv', 'inverted', 'flag'],
  ['flip', 'flipped', 'flag'], ['width', 'width', 'text'], ['kinds', 'kinds', 'text'],
  ['search', 'search', 'text'], ['sort', 'sort', 'text'], ['desc', 'descending', 'flag'],
  ['map', 'module', 'module'], ['theme', 'theme', 'text'], ['sqlopen', 'sql', 'flag'],
  ['asm', 'assembly', 'flag'],
];

// Returns what is chosen when a profile is opened.
export function firstState(profile) {
  const { head, measures, snapshots } = profile;
  const named = measures.all.find(measure => measure.name === head.default) || measures.all[0];
  return {
    view: snapshots.length > 2 ? 'timeline' : 'flame',
    family: named.family, kind: named.kind,
    focus: '', ignore: '', own: head.own_code === true,
    before: head.base ?? -1, after: snapshots.length - 1,
    selected: -1, pivot: -1, byLine: false, zoom: [],
    inverted: false, flipped: false, width: 'after', kinds: '',
    search: '', sort: '', descending: true, module: -1, theme: '', sql: false,
    assembly: false,
  };
}

// Reads choices from the text after # in the address. What makes no sense is ignored.
export function readState(profile, text) {
  const state = firstState(profile);
  const given = new URLSearchParams(text);
  for (const [key, field, kind] of KEPT) {
    if (!given.has(key)) continue;
    state[field] = kind === 'path' ? given.getAll(key).map(step => stepIndex(profile, state, step))
      : readChoice(profile, given, key, kind);
  }
  return madeValid(profile, state);
}

// Writes the choices that differ from the first ones.
export function writeState(profile, state) {
  const first = firstState(profile);
  const out = new URLSearchParams();
  for (const [key, field, kind] of KEPT) {
    const value = state[field];
    if (kind === 'path') value.forEach(step => out.append(key, stepKey(profile, state, step)));
    else if (value !== first[field]) out.set(key, writeChoice(profile, value, kind));
  }
  return out.toString();
}

// Returns the question for a server before any profile is there. The type is not known yet.
export function firstQuestion(text) {
  const given = new URLSearchParams(text);
  return { focus: given.get('focus'), ignore: given.get('ignore') };
}

// Whether two snapshots are compared.
export function isDiff(state) {
  return state.before >= 0 && state.before !== state.after;
}

function readChoice(profile, given, key, kind) {
  const text = given.get(key);
  if (kind === 'flag') return text === '1';
  if (kind === 'number') return Number(text);
  if (kind === 'function') return functionIndex(profile, text);
  if (kind === 'module') return profile.moduleName.indexOf(text);
  return text;
}

function writeChoice(profile, value, kind) {
  if (kind === 'flag') return value ? '1' : '0';
  if (kind === 'function') return value < 0 ? '' : functionKey(profile, value);
  if (kind === 'module') return value < 0 ? '' : profile.moduleName[value];
  return value;
}

// Names a function: by its name, and by its file too if the name alone is not enough.
function functionKey(profile, f) {
  const name = profile.functionName[f];
  return profile.functionName.indexOf(name) === f ? name : name + '\n' + profile.fileOf(f);
}

function functionIndex(profile, key) {
  const cut = key.lastIndexOf('\n');
  const exact = profile.functionName.indexOf(key);
  if (exact >= 0 || cut < 0) return exact;
  const name = key.slice(0, cut);
  const file = key.slice(cut + 1);
  const isIt = (known, f) => known === name && profile.fileOf(f) === file;
  return profile.functionName.findIndex(isIt);
}

// Names a step of a path, which is a function, or in a graph by line a frame: `12 parse`.
function stepKey(profile, { byLine }, step) {
  if (!byLine) return functionKey(profile, step);
  const { func, line } = profile.frames;
  return `${line[step]} ${functionKey(profile, func[step])}`;
}

function stepIndex(profile, { byLine }, key) {
  if (!byLine) return functionIndex(profile, key);
  const cut = key.indexOf(' ');
  const f = functionIndex(profile, key.slice(cut + 1));
  const wanted = Number(key.slice(0, cut));
  const { func, line } = profile.frames;
  return func.findIndex((known, i) => known === f && line[i] === wanted);
}

function madeValid(profile, state) {
  const last = profile.snapshots.length - 1;
  const inRange = (value, least, other) =>
    Number.isInteger(value) && value >= least && value <= last ? value : other;
  state.after = inRange(state.after, 0, last);
  state.before = inRange(state.before, -1, -1);
  const lost = state.zoom.indexOf(-1);
  if (lost >= 0) state.zoom.length = lost;
  const measure = measureOf(profile.measures, state.family, state.kind);
  state.family = measure.family;
  state.kind = measure.kind;
  return state;
}
