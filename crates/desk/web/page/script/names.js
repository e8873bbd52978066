// Shortens names of functions so that they stay apart: pieces at the front of a name are left out
// only if no other function has the rest as its name, and a name that is cut is cut at its end.

import { headOf, visibleText } from './text.js';

const STRING = 'std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >';
const LONGEST_FULL = 80;
// What compilers add to the names of parts of functions.
const OF_COMPILER = /\.(cold|constprop|isra|part|lto_priv|llvm)\b/;

// Makes the names of one profile. A function is its index; −1 is the program itself. Where several
// functions have one name, the end of the file that tells one from the others is beside it.
export function makeNames(profile) {
  const forms = new Map();
  const ends = fileEnds(profile);
  const alone = f => visibleText(f < 0 ? profile.program : profile.functionName[f]) || '(no name)';
  const withEnd = (f, form) => ends.get(f) ? form + ' ' + visibleText(ends.get(f)) : form;
  let shared = null;
  const allForms = f => {
    shared ||= sharedForms(profile.functionName);
    const plain = shortForms(alone(f), form => shared.has(form));
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
// last, `isShared` says which ones other functions have, too. The first `whole` forms keep the
// front of the name.
export function shortForms(full, isShared = () => false) {
  const { spelt, short, last, pieces } = formsByPart(full);
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

function formsByPart(full) {
  // An address, alone or in a file, has no parts that may go, and neither has an import.
  if (/^0x|\+0x[\da-f]+$|^import /.test(full)) {
    return { spelt: full, short: full, last: full, pieces: [] };
  }
  const spelt = full.replaceAll(STRING, 'std::string').replaceAll('std::__cxx11::', 'std::');
  const isCpp = spelt.includes('::') && !spelt.includes('operator');
  const short = isCpp ? shorterCpp(spelt) : folded(spelt, '[', ']');
  const slash = isCpp ? -1 : short.lastIndexOf('/');
  const last = short.slice(slash + 1) || short;
  return { spelt, short, last, pieces: fromFront(last, isCpp ? '::' : '.') };
}

// Whether a form may be drawn in full; longer ones skip to a folded form.
export function isDrawable(form) {
  return form.length < LONGEST_FULL;
}

function shorterCpp(name) {
  const plain = folded(name, '<', '>').replace(/\((?!anonymous).*$/s, '');
  const short = plain.replace(/\[abi:\w+\]/, '');
  const space = short.replaceAll('<…>', '___').lastIndexOf(' ');
  return space > 0 ? short.slice(space + 1) : short;
}

// Drops one piece after the other from the front, as long as what is left can be a name.
function fromFront(name, separator) {
  if (OF_COMPILER.test(name)) return [];
  const pieces = name.split(separator);
  const forms = [];
  while (pieces.length > 1) {
    pieces.shift();
    if (/^[\p{L}_(]/u.test(pieces[0]) && !/^func\d/.test(pieces[0])) {
      forms.push(pieces.join(separator));
    }
  }
  return forms;
}

// Replaces what is between the outermost brackets with an ellipsis.
function folded(name, open, close) {
  let depth = 0;
  let out = '';
  for (const character of name) {
    if (character === open) {
      if (depth++ === 0) out += open + '…' + close;
    } else if (character === close && depth > 0) depth--;
    else if (depth === 0) out += character;
  }
  return depth ? name : out;
}
