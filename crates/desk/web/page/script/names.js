// Shortens names of functions so that they stay apart: pieces at the front of a name are left out
// only if no other function has the rest as its name, and a name that is cut is cut at its end.

import { headOf, tailOf, visibleText } from './text.js';

const STRING = 'std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >';
const LONGEST_FULL = 80;
// A longer name is not compared with others: its templates may nest without end.
const LONGEST_COMPARED = 4000;
// What compilers add to the names of parts of functions.
const OF_COMPILER = /\.(cold|constprop|isra|part|lto_priv|llvm)\b/;

// Makes the names of one profile. A function is its index; −1 is the program itself. Where several
// functions have one name, the end of the file that tells one from the others is beside it. Where
// different names would read the same when they are short, they keep what tells them apart.
export function makeNames(profile) {
  const forms = new Map();
  let twins = null;
  const ends = fileEnds(profile);
  const alone = f => visibleText(f < 0 ? profile.program : profile.functionName[f]) || '(no name)';
  const withEnd = (f, form) => ends.get(f) ? form + ' ' + visibleText(ends.get(f)) : form;
  let shared = null;
  const allForms = f => {
    shared ||= sharedForms(profile.functionName);
    twins ??= makeTwins(profile.functionName);
    const plain = shortForms(alone(f), form => shared.has(form), twins(alone(f)));
    if (!ends.get(f)) return plain;
    // The end of the file tells it from others of its name, so it goes last.
    const all = [...plain.map(form => withEnd(f, form)), ...plain.slice(0, plain.whole)];
    return Object.assign(all, { whole: all.length });
  };
  const formsOf = f => {
    let known = forms.get(f);
    if (!known) forms.set(f, known = allForms(f));
    return known;
  };
  // In a list the path of a value does not stand above it: if others have the name, as much of the
  // path's end as fits is beside it.
  const listedName = (f, length) => {
    const isOneOfMany = ends.get(f) === '' && profile.fileOf(f);
    if (!isOneOfMany) return niceForm(formsOf(f), length);
    const name = niceForm(formsOf(f), Math.ceil(length / 2));
    return name + ' ' + tailOf(visibleText(profile.fileOf(f)), length - name.length - 1);
  };
  const bothEnds = (f, length) => {
    const path = ends.get(f) === '' ? visibleText(profile.fileOf(f)) : '';
    const whole = path ? alone(f) + ' ' + path : withEnd(f, alone(f));
    const half = Math.floor(length / 2);
    return whole.length > length ? headOf(whole, half) + tailOf(whole, half).slice(1) : whole;
  };
  return {
    full: f => withEnd(f, alone(f)),
    // Returns what a server knows the function by: its name, and its file if others have the name.
    key: f => profile.functionName[f] + (ends.has(f) ? '\n' + profile.fileOf(f) : ''),
    // Returns the name as it is, for sorting.
    raw: f => f < 0 ? '' : profile.functionName[f],
    formsOf,
    // Returns the longest form of at most `length` characters, or else the one to cut, for an
    // element whose style cuts it.
    short(f, length) {
      const known = formsOf(f);
      const cut = cutForm(known);
      return known.find(form => form.length <= length)
        || (cut.length <= LONGEST_FULL ? cut : headOf(cut, LONGEST_FULL));
    },
    // Returns the longest form of at most `length` characters, or the head of the one to cut.
    nice: (f, length = 44) => niceForm(formsOf(f), length),
    // Returns the names of functions for a list, by function: different ones, if they fit.
    listed(all, length) {
      const named = new Map(all.map(f => [f, listedName(f, length)]));
      const counts = new Map();
      for (const name of named.values()) counts.set(name, (counts.get(name) || 0) + 1);
      for (const [f, name] of named) if (counts.get(name) > 1) named.set(f, bothEnds(f, length));
      return named;
    },
  };
}

// Returns the shortest end of the file of each function that shares its name with others.
export function fileEnds({ functionName, fileOf }) {
  const groups = new Map();
  const paths = new Set();
  functionName.forEach((name, f) => {
    const group = groups.get(name);
    if (group) group.push(f);
    else groups.set(name, [f]);
    paths.add(fileOf(f) ? fileOf(f) + ';' + name : name);
  });
  const ends = new Map();
  for (const group of groups.values()) if (group.length > 1) addEnds(group, fileOf, paths, ends);
  return ends;
}

// Adds the ends of functions of one name. A file that is a path of names, as values of Perl have,
// is no file to show: nodes have that path above them.
function addEnds(group, fileOf, paths, ends) {
  const partsOf = f => fileOf(f).split('/').reverse();
  const endOf = (parts, count) => parts.slice(0, count).reverse().join('/');
  const found = new Map();
  for (const f of group) {
    partsOf(f).forEach((_, i, parts) => {
      const end = endOf(parts, i + 1);
      found.set(end, (found.get(end) || 0) + 1);
    });
  }
  for (const f of group) {
    const parts = partsOf(f);
    let count = 1;
    while (count < parts.length && found.get(endOf(parts, count)) > 1) count++;
    ends.set(f, paths.has(fileOf(f)) ? '' : endOf(parts, count));
  }
}

// Returns the longest of these forms that fits, or the head of the one that is cut.
export function niceForm(forms, length) {
  return forms.find(form => form.length <= length) || headOf(cutForm(forms), length - 1);
}

// Returns the form that is cut if none fits: the shortest one that keeps the front of the name.
export function cutForm(forms) {
  return forms[forms.whole - 1];
}

// Returns a name in ever shorter forms: full, std::string spelt short, without what is in templates
// and parameters, without the folders of a path, and then without namespaces from the front. Of the
// last, `isShared` says which ones other functions have, too. `apart` is the form without most of
// its templates that tells the name from others, if there are others. The first `whole` forms keep
// the front of the name.
export function shortForms(full, isShared = () => false, apart = '') {
  const { spelt, short, last, pieces } = formsByPart(full, apart);
  const forms = [full];
  const add = form => form && form !== forms.at(-1) && forms.push(form);
  [spelt, short, isShared(last) ? short : last].forEach(add);
  forms.whole = forms.length;
  pieces.filter(form => !isShared(form)).forEach(add);
  return forms;
}

// Returns the forms without folders and namespaces that several of these names have.
function sharedForms(names) {
  const owner = new Map();
  const shared = new Set();
  for (const name of new Set(names)) {
    const { last, pieces } = formsByPart(visibleText(name));
    for (const form of [last, ...pieces]) {
      if (owner.has(form) && owner.get(form) !== name) shared.add(form);
      owner.set(form, name);
    }
  }
  return shared;
}

function formsByPart(full, apart = '') {
  // An address, alone or in a file, has no parts that may go, and neither has an import.
  if (/^0x|\+0x[\da-f]+$|^import /.test(full)) {
    return { spelt: full, short: full, last: full, pieces: [] };
  }
  const spelt = speltShort(full);
  if (apart) {
    const pieces = isCpp(spelt) ? fromFront(apart, '::').filter(form => /[<(]/.test(form)) : [];
    return { spelt, short: apart, last: apart, pieces };
  }
  const short = isCpp(spelt) ? plainCpp(spelt) : folded(spelt, '[', ']');
  const slash = isCpp(spelt) ? -1 : short.lastIndexOf('/');
  const last = short.slice(slash + 1) || short;
  return { spelt, short, last, pieces: fromFront(last, isCpp(spelt) ? '::' : '.') };
}

// Makes a function that returns the form of a name which tells it apart from all names with the
// same folded form: with the first arguments of its templates, otherwise with its parameters;
// empty if there is none. A generic function of Go has its first arguments, or all.
function makeTwins(names) {
  const groups = new Map();
  const foldedForm = spelt => {
    if (spelt.length > LONGEST_COMPARED) return '';
    return isCpp(spelt) ? plainCpp(spelt) : spelt.includes('[') && folded(spelt, '[', ']');
  };
  for (const name of new Set(names)) {
    const spelt = speltShort(visibleText(name));
    const short = foldedForm(spelt);
    if (!short) continue;
    const group = groups.get(short);
    if (group) group.push(spelt);
    else groups.set(short, [spelt]);
  }
  const ways = [
    name => isCpp(name) ? plainCpp(name, true) : folded(name, '[', ']', true),
    name => isCpp(name) ? withoutReturnType(folded(name, '<', '>', true)) : name,
  ];
  const counts = new Map();
  const countsOf = short => {
    let known = counts.get(short);
    if (!known) {
      counts.set(short, known = ways.map(way => {
        const count = new Map();
        for (const name of groups.get(short)) count.set(way(name), (count.get(way(name)) || 0) + 1);
        return count;
      }));
    }
    return known;
  };
  return full => {
    const spelt = speltShort(full);
    const short = foldedForm(spelt);
    if (!((short && groups.get(short)?.length) > 1)) return '';
    const found = countsOf(short);
    return ways.map(way => way(spelt)).find((form, i) => found[i].get(form) === 1) || '';
  };
}

// Whether a form may be drawn in full; longer ones skip to a folded form.
export function isDrawable(form) {
  return form.length < LONGEST_FULL;
}

function speltShort(name) {
  return name.replaceAll(STRING, 'std::string').replaceAll('std::__cxx11::', 'std::');
}

function isCpp(name) {
  return name.includes('::') && !name.includes('operator');
}

// Returns a C++ name without its parameters and with its templates folded; `keepsFirst` keeps their
// first arguments.
function plainCpp(name, keepsFirst) {
  const short = folded(name, '<', '>', keepsFirst);
  return withoutReturnType(short.replace(/\((?!anonymous).*$/s, '').replace(/\[abi:\w+\]/, ''));
}

// Drops what stands before the last blank that is between no brackets.
function withoutReturnType(name) {
  let depth = 0;
  let start = 0;
  for (let i = 0; i < name.length; i++) {
    if ('<('.includes(name[i])) depth++;
    else if ('>)'.includes(name[i])) depth--;
    else if (name[i] === ' ' && depth === 0 && !name.startsWith(' const', i)) start = i + 1;
  }
  return name.slice(start);
}

// Drops one piece after the other from the front, as long as what is left can be a name. A
// function without a name of its own, such as {closure#0}, keeps the function that contains it.
function fromFront(name, separator) {
  if (OF_COMPILER.test(name)) return [];
  const forms = [];
  let depth = 0;
  for (let i = 0; i < name.length; i++) {
    if ('<([{'.includes(name[i])) depth++;
    else if ('>)]}'.includes(name[i])) depth--;
    else if (depth === 0 && name.startsWith(separator, i)) {
      const rest = name.slice(i + separator.length);
      i += separator.length - 1;
      if (/^[\p{L}_(~]/u.test(rest) && !/^(__ANON__|func\d)/.test(rest)) forms.push(rest);
    }
  }
  return forms;
}

// Replaces what is between the outermost brackets with an ellipsis; `keepsFirst` keeps what stands
// before the first comma, but folds what is in it.
function folded(name, open, close, keepsFirst) {
  // A bracket at the beginning is the path of a Rust name, <A as B>, and no list of arguments.
  const end = keepsFirst && name[0] === open ? name.lastIndexOf(close + '::') : 0;
  if (end > 0) {
    const parts = [name.slice(1, end), name.slice(end + 1)];
    return open + parts.map(part => folded(part, open, close, true)).join(close);
  }
  let depth = 0;
  let round = 0;
  let out = '';
  let isFirst = false;
  for (const character of name) {
    const isDropped = depth > 1 || depth === 1 && !isFirst;
    if (character === open) {
      depth++;
      if (depth === 1) {
        isFirst = !!keepsFirst;
        round = 0;
        out += keepsFirst ? open : open + '…' + close;
      } else if (depth === 2 && !isDropped) out += open + '…' + close;
    } else if (character === close && depth > 0) {
      depth--;
      if (depth === 0 && keepsFirst) out += close;
    } else if (depth === 1 && isFirst && character === ',' && round === 0) {
      isFirst = false;
      out += ', …';
    } else if (!isDropped) {
      if (character === '(') round++;
      if (character === ')') round--;
      out += character;
    }
  }
  return depth ? name : out;
}
