// Reads regular expressions so that they mean here what they mean to `heapprof top --focus`.
// The command uses Rust's regex. What both read alike is kept, what they write differently is
// written anew, and what has no counterpart is refused with a message.

const WORD = '\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}';
const CLASSES = {
  d: '[\\p{Nd}]', D: '[^\\p{Nd}]', s: '[\\p{White_Space}]', S: '[^\\p{White_Space}]',
  w: `[${WORD}]`, W: `[^${WORD}]`,
};
const IN_CLASS = {
  d: '\\p{Nd}', D: '\\P{Nd}', s: '\\p{White_Space}', S: '\\P{White_Space}', w: WORD,
};
const EDGES = {
  A: '(?<![\\s\\S])', z: '(?![\\s\\S])',
  b: `(?:(?<=[${WORD}])(?![${WORD}])|(?<![${WORD}])(?=[${WORD}]))`,
  B: `(?:(?<=[${WORD}])(?=[${WORD}])|(?<![${WORD}])(?![${WORD}]))`,
};
const SYNTAX = '^$\\.*+?()[]{}|/';

// Returns {regex, error}; both are null for an empty text.
export function readPattern(text) {
  if (!text) return { regex: null, error: null };
  try {
    const flagged = text.match(/^\(\?i\)/);
    const body = flagged ? text.slice(4) : text;
    return { regex: new RegExp(translated(body), flagged ? 'iu' : 'u'), error: null };
  } catch (error) {
    return { regex: null, error: plainMessage(error) };
  }
}

function plainMessage(error) {
  return error.message.replace(/^Invalid regular expression: .*\/[a-z]*: /s, 'Not a pattern: ');
}

// Returns the same pattern in JavaScript's words. It throws what has no counterpart.
function translated(text) {
  const out = [];
  const characters = Array.from(text);
  let at = 0;
  while (at < characters.length) {
    const character = characters[at];
    if (character === '\\') at = escaped(characters, at, out, false);
    else if (character === '[') at = bracketed(characters, at, out);
    else if (character === '(' && characters[at + 1] === '?') at = grouped(characters, at, out);
    else if (character === '{') at = counted(characters, at, out);
    else {
      out.push(plain(character));
      at++;
    }
  }
  return out.join('');
}

function plain(character) {
  if (character === '.') return '[^\\n]';
  return character === ']' || character === '}' ? '\\' + character : character;
}

// Reads how often something is repeated: {2}, {2,} or {2,5}.
function counted(characters, at, out) {
  const found = characters.slice(at, at + 24).join('').match(/^\{\d+(,\d*)?\}/);
  if (!found) throw new Error('A { that is not a count must be written as \\{.');
  return push(out, found[0], at + found[0].length);
}

// Reads what begins with `(?`: only groups without a capture and with a name.
function grouped(characters, at, out) {
  const rest = characters.slice(at, at + 4).join('');
  if (/^\(\?(=|!|<=|<!)/.test(rest)) {
    throw new Error('Look-around is not possible: heapprof’s patterns do not have it.');
  }
  if (rest.startsWith('(?:')) return push(out, '(?:', at + 3);
  if (rest.startsWith('(?P<')) return push(out, '(?<', at + 4);
  if (rest.startsWith('(?<')) return push(out, '(?<', at + 3);
  throw new Error('Flags are possible only as (?i) at the start.');
}

// Reads what begins with a backslash; `inClass` says that it is between brackets.
function escaped(characters, at, out, inClass) {
  const letter = characters[at + 1];
  if (letter === undefined) throw new Error('The pattern ends in a backslash.');
  const next = at + 2;
  if (letter === 'k' || letter >= '0' && letter <= '9') {
    throw new Error('Back-references are not possible: heapprof’s patterns do not have them.');
  }
  const table = inClass ? IN_CLASS : CLASSES;
  if (table[letter]) return push(out, table[letter], next);
  if (!inClass && EDGES[letter] && !(letter === 'b' && characters[next] === '{')) {
    return push(out, EDGES[letter], next);
  }
  if (letter === 'p' || letter === 'P') return property(characters, at, out);
  if (letter === 'x' || letter === 'u') return coded(characters, at, out);
  if (letter === 'a') return push(out, '\\x07', next);
  if ('nrtfv'.includes(letter)) return push(out, '\\' + letter, next);
  if (/[\x21-\x2f\x3a-\x3b\x3d\x3f-\x40\x5b-\x60\x7b-\x7e ]/.test(letter)) {
    const kept = SYNTAX.includes(letter) || inClass && letter === '-';
    return push(out, kept ? '\\' + letter : letter, next);
  }
  throw new Error(`\\${letter} is not possible here: it is not the same in heapprof’s patterns.`);
}

// Reads \pL and \p{Lu}.
function property(characters, at, out) {
  const letter = characters[at + 1];
  if (characters[at + 2] === '{') return braced('\\' + letter, characters, at + 2, out);
  return push(out, `\\${letter}{${characters[at + 2] || ''}}`, at + 3);
}

// Reads \x7f, \x{7f}, \u00e9 and \u{e9}.
function coded(characters, at, out) {
  if (characters[at + 2] === '{') return braced('\\u', characters, at + 2, out);
  return push(out, '\\' + characters[at + 1], at + 2);
}

// Reads on to the closing brace.
function braced(start, characters, at, out) {
  const end = characters.indexOf('}', at);
  if (end < 0) throw new Error('A { has no }.');
  return push(out, start + characters.slice(at, end + 1).join(''), end + 1);
}

// Reads a class between brackets. Classes in classes and set operations are refused.
function bracketed(characters, at, out) {
  out.push('[');
  at++;
  if (characters[at] === '^') at = push(out, '^', at + 1);
  if (characters[at] === ']') throw new Error('A class that starts with ] needs \\] instead.');
  while (characters[at] !== ']') {
    const character = characters[at];
    if (character === undefined) throw new Error('A [ has no ].');
    if (character === '[') throw new Error('A [ inside a class needs \\[ instead.');
    if ('&-~'.includes(character) && characters[at + 1] === character) {
      throw new Error(`${character}${character} inside a class is not possible.`);
    }
    if (character === '\\') at = escaped(characters, at, out, true);
    else at = push(out, /[(){}|/]/.test(character) ? '\\' + character : character, at + 1);
  }
  return push(out, ']', at + 1);
}

function push(out, text, next) {
  out.push(text);
  return next;
}
