// Finds who calls a function, what it calls, and on which lines it allocates.

// Returns {callers, callees, own}: lists of [function, value], largest first. In diff mode values
// are changes. Callers are those of the outermost frame, callees those of the innermost one, as in
// `heapprof peek`.
export function neighboursOf(model, f) {
  const { tree } = model;
  const { func, parent, isOutermost } = tree;
  const value = model.isDiff ? i => tree.after[i] - tree.before[i] : i => tree.after[i];
  const selfValue = model.isDiff
    ? i => tree.self.after[i] - tree.self.before[i] : i => tree.self.after[i];
  const nested = nestedValues(tree, f, value);
  const callers = new Map();
  const callees = new Map();
  let own = 0;
  for (let i = 1; i < tree.size; i++) {
    if (func[i] === f) {
      if (isOutermost[i]) add(callers, func[parent[i]], value(i));
      own += selfValue(i);
    } else if (func[parent[i]] === f) {
      add(callees, func[i], value(i) - (nested.get(i) || 0));
    }
  }
  return { callers: sorted(callers), callees: sorted(callees), own };
}

// Returns the lines on which a function allocates: [line, before, after], largest first.
export function linesOf(model, f) {
  const { question } = model;
  const before = lineValues(model, f, question.before);
  const after = lineValues(model, f, question.after);
  const lines = new Set([...before.keys(), ...after.keys()]);
  const rows = [...lines].map(line => [line, before.get(line) || 0, after.get(line) || 0])
    .filter(row => row[1] || row[2]);
  const size = row => model.isDiff ? Math.abs(row[2] - row[1]) : Math.abs(row[2]);
  return rows.sort((a, b) => size(b) - size(a) || a[0] - b[0]);
}

// Finds what recursion passes on: for each callee of `f`, the values that go through `f` again.
function nestedValues(tree, f, value) {
  const nested = new Map();
  const { func, parent, isOutermost } = tree;
  for (let i = 1; i < tree.size; i++) {
    if (func[i] !== f || isOutermost[i] || value(i) === 0) continue;
    let at = i;
    while (func[parent[at]] !== f) at = parent[at];
    if (at !== i) nested.set(at, (nested.get(at) || 0) + value(i));
  }
  return nested;
}

function lineValues(model, f, snapshot) {
  const lines = new Map();
  if (snapshot < 0) return lines;
  const { profile, shape, kept, question } = model;
  const { nodes, values } = profile.samplesOf(snapshot, question.measure.index);
  for (let i = 0; i < nodes.length; i++) {
    const at = shape.nodeToTree[nodes[i]];
    const home = question.own ? shape.keeper[at] : at;
    if (shape.func[home] !== f || !kept[at]) continue;
    let node = nodes[i];
    while (shape.nodeToTree[node] !== home) node = profile.nodes.parent[node];
    add(lines, profile.nodes.lineOf(node), values[i]);
  }
  return lines;
}

function add(map, key, value) {
  map.set(key, (map.get(key) || 0) + value);
}

function sorted(map) {
  const rows = [...map].filter(([, value]) => value !== 0);
  return rows.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]) || a[0] - b[0]);
}
