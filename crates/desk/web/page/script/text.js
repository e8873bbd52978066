// Shows text that may hold anything: what cannot be seen, or would turn the line round, is written
// out.

// Control characters, bidi controls, zero-width characters, odd line ends and broken surrogates.
const UNSEEN = new RegExp(
  '[\\u0000-\\u001f\\u007f-\\u009f]' +
  '|[\\u00ad\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff]' +
  '|[\\ud800-\\udbff](?![\\udc00-\\udfff])' +
  '|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]', 'g');

// Returns text in which each unseen character is an escape: \x07 or \u{202e}.
export function visibleText(text) {
  return String(text).replace(UNSEEN, escapeOf);
}

function escapeOf(character) {
  const hex = character.charCodeAt(0).toString(16);
  return hex.length <= 2 ? '\\x' + hex.padStart(2, '0') : '\\u{' + hex + '}';
}

// Returns the first `length` characters and an ellipsis; it never cuts a character in two.
export function headOf(text, length) {
  let end = Math.max(0, length);
  const code = text.charCodeAt(end);
  if (code >= 0xdc00 && code <= 0xdfff) end--;
  return text.slice(0, end) + '…';
}

// Returns a text of at most `length` characters, or an ellipsis and its end; it never cuts a
// character in two.
export function tailOf(text, length) {
  if (text.length <= length) return text;
  let start = text.length - Math.max(0, length - 1);
  const code = text.charCodeAt(start);
  if (code >= 0xdc00 && code <= 0xdfff) start++;
  return '…' + text.slice(start);
}

// Puts a text in quotes for a shell.
export function shellQuoted(text) {
  return /^[\w./:@%+=,-]+$/.test(text) ? text : "'" + text.replace(/'/g, "'\\''") + "'";
}

// Returns a pattern that matches exactly this text, in JavaScript as in Rust.
export function exactPattern(text) {
  return '^' + text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&') + '$';
}

// Returns FNV-1a of a text, from which colours start.
export function hashText(text) {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  return hash >>> 0;
}
