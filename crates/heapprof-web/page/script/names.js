// Shortens names of functions so that what tells them apart stays.

import { tailOf, visibleText } from './text.js';

const STRING = 'std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >';
const LONGEST_FULL = 80;

// Makes the names of one profile. A function is its index; −1 is the program itself.
export function makeNames(profile) {
  const forms = new Map();
  const full = f =>
    visibleText(f < 0 ? profile.program : profile.functionName[f]) || '(no name)';
  const formsOf = f => {
    let known = forms.get(f);
    if (!known) forms.set(f, known = shortForms(full(f)));
    return known;
  };
  return {
    full,
    // Returns the name as it is, for sorting.
    raw: f => f < 0 ? '' : profile.functionName[f],
    formsOf,
    // Returns the longest form of at most `length` characters, or the tail of the shortest one.
    nice: (f, length = 44) => niceForm(formsOf(f), length),
  };
}

// Returns the longest of these forms that fits, or the tail of the shortest one.
export function niceForm(forms, length) {
  return forms.find(form => form.length <= length) || tailOf(forms.at(-1), length - 1);
}

// Returns a name in ever shorter forms: full, std::string spelt short, templates or generics
// folded, then without namespaces or paths from the front.
export function shortForms(full) {
  // An address, alone or in a file, has no parts that may go.
  if (/^0x|\+0x[\da-f]+$/.test(full)) return [full];
  const spelt = full.replaceAll(STRING, 'std::string').replaceAll('std::__cxx11::', 'std::');
  const forms = spelt === full ? [full] : [full, spelt];
  const pieces = spelt.includes('::') && !spelt.includes('operator')
    ? shorterCpp(spelt) : shorterPath(spelt);
  for (const form of pieces) if (form && form !== forms[forms.length - 1]) forms.push(form);
  return forms;
}

// Whether a form may be drawn in full; longer ones skip to a folded form.
export function isDrawable(form) {
  return form.length < LONGEST_FULL;
}

function shorterCpp(name) {
  let short = folded(name, '<', '>').replace(/\((?!anonymous).*$/s, '').replace(/\[abi:\w+\]/, '');
  const space = short.replaceAll('<…>', '___').lastIndexOf(' ');
  if (space > 0) short = short.slice(space + 1);
  return [short, ...fromFront(short, '::')];
}

function shorterPath(name) {
  let short = folded(name, '[', ']');
  const forms = [short];
  const slash = short.lastIndexOf('/');
  if (slash > 0) forms.push(short = short.slice(slash + 1));
  return [...forms, ...fromFront(short, '.')];
}

// Drops one piece after the other from the front.
function fromFront(name, separator) {
  const pieces = name.split(separator);
  const forms = [];
  while (pieces.length > 1) {
    pieces.shift();
    forms.push(pieces.join(separator));
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
