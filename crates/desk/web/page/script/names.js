// Shortens names of functions so that they stay apart: a name is cut at its end, and folders at its
// front are left out only if no other function has the rest as its name.

import { headOf, visibleText } from './text.js';

const STRING = 'std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >';
const LONGEST_FULL = 80;

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
    return ends.get(f) ? [...plain.map(form => withEnd(f, form)), ...plain] : plain;
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
    // Returns the longest form of at most `length` characters, or else the shortest one, for an
    // element whose style cuts it.
    short(f, length) {
      const known = formsOf(f);
      return known.find(form => form.length <= length) || niceForm(known.slice(-1), LONGEST_FULL);
    },
    // Returns the longest form of at most `length` characters, or the head of the shortest one.
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

// Returns the longest of these forms that fits, or the head of the shortest one.
export function niceForm(forms, length) {
  return forms.find(form => form.length <= length) || headOf(forms.at(-1), length - 1);
}

// Returns a name in ever shorter forms: full, std::string spelt short, without what is in templates
// and parameters, and at last without the folders of a path, unless `isShared` says that another
// function has that form, too. Namespaces stay, because a name is cut at its end.
export function shortForms(full, isShared = () => false) {
  const { spelt, short, last } = formsByPart(full);
  const forms = [full];
  for (const form of [spelt, short, isShared(last) ? short : last]) {
    if (form && form !== forms.at(-1)) forms.push(form);
  }
  return forms;
}

// Returns the forms without folders that several of these names have.
function sharedForms(names) {
  const owner = new Map();
  const shared = new Set();
  for (const name of new Set(names)) {
    const { last } = formsByPart(visibleText(name));
    if (owner.has(last) && owner.get(last) !== name) shared.add(last);
    owner.set(last, name);
  }
  return shared;
}

function formsByPart(full) {
  // An address, alone or in a file, has no parts that may go.
  if (/^0x|\+0x[\da-f]+$/.test(full)) return { spelt: full, short: full, last: full };
  const spelt = full.replaceAll(STRING, 'std::string').replaceAll('std::__cxx11::', 'std::');
  const isCpp = spelt.includes('::') && !spelt.includes('operator');
  const short = isCpp ? shorterCpp(spelt) : folded(spelt, '[', ']');
  const slash = isCpp ? -1 : short.lastIndexOf('/');
  return { spelt, short, last: short.slice(slash + 1) || short };
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
