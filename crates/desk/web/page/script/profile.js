// Holds one profile as the page reads it: a tree of calls by line, and values for each snapshot.

import { readMeasures } from './measures.js';

const OTHER = '(other)';

// Makes a profile from an open container.
export function readProfile(container) {
  const { head } = container;
  const frames = { func: container.whole('frame.func'), line: container.whole('frame.line') };
  const nodes = readNodes(container, frames);
  const measures = readMeasures(head.types);
  return {
    head,
    measures,
    frames,
    nodes,
    hasLines: frames.line.some(line => line > 0),
    // The shapes of trees that were made; see call_tree.js.
    shapes: {},
    program: head.program,
    functionName: head.func.name,
    functionCount: head.func.name.length,
    moduleOf: head.func.module,
    moduleName: head.module,
    isLibrary: head.lib,
    snapshots: head.snapshots.map(snapshot => readSnapshot(snapshot, head.period)),
    isHeap: measures.families.some(({ key }) => key === 'inuse' || key === 'alloc'),
    samplesOf: makeSamples(container),
    sizes: readSizes(container, measures),
    fileOf: f => head.file[head.func.file[f]] || '',
    startOf: f => head.func.start?.[f] || 0,
    mappedOf: f => head.mapped?.[head.func.mapped?.[f]] || '',
    importedFrom: importedFiles(head, frames),
    isOther: f => head.func.name[f] === OTHER,
  };
}

// Returns a function that says for the import of a module which file the module is in, else null.
function importedFiles(head, { func }) {
  const files = new Map();
  for (const [module, ...imports] of head.imports?.modules || []) {
    for (const frame of imports) files.set(func[frame], head.file[head.func.file[func[module]]]);
  }
  return f => files.get(f) ?? null;
}

// Returns the sum of all values of a type in a snapshot.
export function totalOf(profile, snapshot, type) {
  const given = profile.snapshots[snapshot].total;
  if (given) return Number(given[type]);
  return profile.samplesOf(snapshot, type).values.reduce((sum, value) => sum + value, 0);
}

// Reads nodes in pre-order: the parent of each (−1 for a root), its function, frame and line.
function readNodes(container, frames) {
  const up = container.whole('node.up');
  const frame = container.whole('node.frame');
  const count = up.length;
  const parent = new Int32Array(count);
  const func = new Int32Array(count);
  for (let i = 0; i < count; i++) {
    const above = i - up[i];
    parent[i] = above >= 0 && above < i ? above : -1;
    func[i] = frames.func[frame[i]];
  }
  return { count, parent, func, frame, lineOf: node => frames.line[frame[node]] };
}

// Makes a reader of values. It keeps the columns that were read last.
function makeSamples(container) {
  const kept = new Map();
  const read = (name, reader) => {
    let column = kept.get(name);
    if (!column) {
      if (kept.size > 60) kept.delete(kept.keys().next().value);
      kept.set(name, column = reader(name));
    }
    return column;
  };
  return (snapshot, type) => ({
    nodes: read(`s${snapshot}.node`, container.whole) || new Int32Array(0),
    values: read(`s${snapshot}.v${type}`, container.column) || new Float64Array(0),
  });
}

// Older files have the resident set as an object, the time in nanoseconds, and one period for all.
function readSnapshot(snapshot, period) {
  const plain = value => value == null ? null : Number(value.bytes ?? value);
  const t = Number(snapshot.t);
  return {
    ...snapshot,
    t: t > 1e15 ? t / 1e6 : t,
    rss: plain(snapshot.rss),
    peakRss: plain(snapshot.peak_rss),
    peakParts: (snapshot.peak_parts || []).map(([kind, name, bytes]) => ({ kind, name, bytes })),
    period: snapshot.period ?? period,
  };
}

// Returns the sizes that samples of the last snapshot carry, if they do.
function readSizes(container, measures) {
  if (!container.has('size.node')) return null;
  return {
    nodes: container.whole('size.node'),
    log2: container.whole('size.log2'),
    values: type => container.column('size.v' + type),
    measures,
  };
}
