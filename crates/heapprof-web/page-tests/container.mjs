// Reads the data of a page in its own way, and computes what the page must show. It shares no code
// with the page: it works stack by stack, slowly and plainly.
import { readFileSync } from 'node:fs';
import { inflateSync } from 'node:zlib';

// Returns the container of a page's file.
export function containerOf(file) {
  const html = readFileSync(file, 'utf8');
  const found = html.match(/id="data" data-chars="(\d+)">([^<]*)/);
  if (!found) throw new Error(file + ' has no data');
  if (found[2].length !== Number(found[1])) throw new Error(file + ' is cut off');
  return openBytes(Buffer.from(found[2], 'base64'));
}

export function openBytes(packed) {
  const raw = inflateSync(packed);
  const length = raw.readUInt32LE(0);
  const head = JSON.parse(raw.subarray(4, 4 + length).toString('utf8'));
  const blob = raw.subarray(4 + length);
  const column = name => {
    const found = head.columns.find(c => c[0] === name);
    if (!found) return null;
    const [, offset, count, kind] = found;
    let at = offset;
    let sum = 0n;
    const out = [];
    for (let i = 0; i < count; i++) {
      let value = 0n;
      let shift = 0n;
      let byte;
      do {
        byte = blob[at++];
        value |= BigInt(byte & 127) << shift;
        shift += 7n;
      } while (byte & 128);
      if (kind !== 'u') value = value & 1n ? -((value + 1n) >> 1n) : value >> 1n;
      if (kind === 'd') value = sum += value;
      out.push(Number(value));
    }
    return out;
  };
  return { head, column };
}

// Returns the samples of a snapshot and type: [{stack: [function … root first], lines, value}].
export function samplesOf(container, snapshot, type) {
  const { column } = container;
  const tree = container.tree ||= {
    up: column('node.up'), frame: column('node.frame'),
    func: column('frame.func'), line: column('frame.line'),
  };
  const nodes = column(`s${snapshot}.node`) || [];
  const values = column(`s${snapshot}.v${type}`) || [];
  return nodes.map((node, i) => {
    const stack = [];
    const lines = [];
    for (let at = node; at >= 0;) {
      stack.unshift(tree.func[tree.frame[at]]);
      lines.unshift(tree.line[tree.frame[at]]);
      const next = at - tree.up[at];
      at = next >= 0 && next < at ? next : -1;
    }
    return { stack, lines, value: values[i] };
  });
}

// Sums flat and cum by function. A question is {focus, ignore (RegExp), own}.
export function totals(container, snapshot, type, { focus, ignore, own } = {}) {
  const { head } = container;
  const text = f => [head.func.name[f], head.file[head.func.file[f]] || ''];
  const hits = (regex, stack) => stack.some(f => text(f).some(t => regex.test(t)));
  const isLibrary = f => head.lib[head.func.module[f]];
  const flat = new Map();
  const cum = new Map();
  let total = 0;
  for (const { stack, value } of samplesOf(container, snapshot, type)) {
    if (ignore && hits(ignore, stack)) continue;
    if (focus && !hits(focus, stack)) continue;
    let kept = stack;
    if (own && stack.some(f => !isLibrary(f))) {
      kept = stack.slice();
      while (isLibrary(kept[kept.length - 1])) kept.pop();
    }
    total += value;
    const leaf = kept[kept.length - 1];
    flat.set(leaf, (flat.get(leaf) || 0) + value);
    for (const f of new Set(kept)) cum.set(f, (cum.get(f) || 0) + value);
  }
  return { flat, cum, total };
}

// Returns the number of a type by its name.
export function typeIndex(container, name) {
  return container.head.types.findIndex(type => type[0] === name);
}
