// Finds the text of a source line, if the file brought source with it.

// Returns the text of a line, or null. Source is {file index: {first line: text of the lines}}.
export function sourceLine(profile, f, line) {
  const blocks = profile.head.source?.[profile.head.func.file[f]];
  if (!blocks || !line) return null;
  let first = -1;
  for (const key of Object.keys(blocks)) {
    if (Number(key) <= line && Number(key) > first) first = Number(key);
  }
  if (first < 0) return null;
  const block = blocks[first];
  const lines = Array.isArray(block) ? block : String(block).split('\n');
  const text = lines[line - first];
  return text == null ? null : text.trim();
}
