// Merges the profile's nodes to a tree by function or by line, and sums values over it. In every
// tree here a parent has a smaller index than its children, and index 0 is the root. Siblings
// differ by their `key`: the function, or the frame, which is a function with a line.

import { makeImportFolder } from './imports.js';

// Returns the tree's shape. It depends on the profile and on these two choices only: whether the
// tree is by line, and whether imports are folded, as they are under "Own code". So it is made once
// for each of them.
export function shapeOf(profile, byLine, own) {
  const folds = own && profile.head.imports != null;
  const name = (byLine ? 'lines' : 'functions') + (folds ? ', folded' : '');
  return profile.shapes[name] ||= mergeNodes(profile, byLine, folds);
}

function mergeNodes(profile, byLine, folds) {
  const { nodes, frames } = profile;
  const { count, parent, frame } = nodes;
  const merged = {
    size: 1,
    key: new Int32Array(count + 1),
    parent: new Int32Array(count + 1),
    isOutermost: new Uint8Array(count + 1),
    nodeToTree: new Int32Array(count),
  };
  merged.key[0] = merged.parent[0] = -1;
  const keyOf = byLine ? at => at : at => frames.func[at];
  const functionOf = byLine ? key => frames.func[key] : key => key;
  const find = makeFinder(merged, count);
  const place = folds ? makeImportFolder(profile, merged.nodeToTree, find, keyOf)
    : (node, under) => find(under, keyOf(frame[node]));
  const above = [];
  const active = new Int32Array(profile.functionCount);
  for (let node = 0; node < count; node++) {
    while (above.length && above[above.length - 1] !== parent[node]) {
      active[functionOf(merged.key[merged.nodeToTree[above.pop()]])]--;
    }
    const under = parent[node] < 0 ? 0 : merged.nodeToTree[parent[node]];
    const at = merged.nodeToTree[node] = place(node, under);
    const f = functionOf(merged.key[at]);
    if (active[f] === 0) merged.isOutermost[at] = 1;
    active[f]++;
    above.push(node);
  }
  return finished(profile, merged, functionOf, byLine);
}

// Makes a function that finds the child of a tree node for a key, or adds it. It hashes pairs into
// an open table, which is much faster than a Map of numbers.
function makeFinder(merged, count) {
  const size = 2 ** Math.ceil(Math.log2(2 * count + 4));
  const table = new Int32Array(size);
  const mask = size - 1;
  const { key, parent } = merged;
  return (under, wanted) => {
    let slot = (Math.imul(under, 0x9e3779b1) ^ Math.imul(wanted + 1, 0x85ebca6b)) & mask;
    for (let at = table[slot]; at !== 0; at = table[slot]) {
      if (key[at] === wanted && parent[at] === under) return at;
      slot = (slot + 1) & mask;
    }
    const made = merged.size++;
    table[slot] = made;
    key[made] = wanted;
    parent[made] = under;
    return made;
  };
}

function finished(profile, merged, functionOf, byLine) {
  const { size } = merged;
  const key = merged.key.slice(0, size);
  const shape = {
    size, key, byLine,
    func: byLine ? key.map((frame, i) => i ? functionOf(frame) : -1) : key,
    parent: merged.parent.slice(0, size),
    isOutermost: merged.isOutermost.slice(0, size),
    nodeToTree: merged.nodeToTree,
  };
  Object.assign(shape, linkChildren(shape), { keeper: keepers(profile, shape) });
  return shape;
}

// Links each node to its first child and its next sibling.
export function linkChildren(tree) {
  const first = new Int32Array(tree.size).fill(-1);
  const next = new Int32Array(tree.size).fill(-1);
  for (let i = tree.size - 1; i > 0; i--) {
    next[i] = first[tree.parent[i]];
    first[tree.parent[i]] = i;
  }
  return { first, next };
}

// Whether a function's name is only an address or a mark. Memory of a library does not count for
// such a function, because the name of the library's function says more.
const UNNAMED =
  /^[^\p{L}\p{N}]*(0x|unknown[^\p{L}\p{N}]*$|null[^\p{L}\p{N}]*$|$)|^\[|^[^ ]*[+@]0x/u;

// Finds for each node where its memory goes under "Own code": to itself, or, if it is a library's,
// to the nearest caller that is not. A stack stays as it is if that caller has no name, or if there
// are libraries only.
function keepers(profile, shape) {
  const keeper = new Int32Array(shape.size);
  const nearest = new Int32Array(shape.size).fill(-1);
  const isUnnamed = profile.functionName.map(name => UNNAMED.test(name));
  for (let i = 1; i < shape.size; i++) {
    const isLibrary = profile.isLibrary[profile.moduleOf[shape.func[i]]];
    nearest[i] = isLibrary ? nearest[shape.parent[i]] : i;
    const own = nearest[i];
    keeper[i] = own < 0 || isUnnamed[shape.func[own]] ? i : own;
  }
  return keeper;
}

// Says for each tree node whether the filters keep stacks that end there.
export function keptNodes(profile, shape, focus, ignore) {
  const kept = new Uint8Array(shape.size);
  if (!focus && !ignore) return kept.fill(1);
  const wanted = focus && matches(profile, focus);
  const unwanted = ignore && matches(profile, ignore);
  const seen = new Uint8Array(shape.size);
  for (let i = 1; i < shape.size; i++) {
    const f = shape.func[i];
    const here = (wanted && wanted[f] ? 1 : 0) | (unwanted && unwanted[f] ? 2 : 0);
    seen[i] = seen[shape.parent[i]] | here;
    kept[i] = (!focus || seen[i] & 1) && !(seen[i] & 2) ? 1 : 0;
  }
  return kept;
}

// Says for each function whether a pattern matches its name, its file or its mapped file.
export function matches(profile, regex) {
  const found = new Uint8Array(profile.functionCount);
  const known = new Map();
  const test = text => {
    let answer = known.get(text);
    if (answer === undefined) known.set(text, answer = regex.test(text));
    return answer;
  };
  for (let f = 0; f < found.length; f++) {
    const name = profile.functionName[f];
    const isFound = regex.test(name) || test(profile.fileOf(f)) || test(profile.mappedOf(f));
    if (isFound) found[f] = 1;
  }
  return found;
}

// Adds one column of samples to the self values of the tree, as far as they are kept.
export function addSelf(profile, shape, column, kept, own, self) {
  const { nodes, values } = column;
  const { nodeToTree, keeper } = shape;
  for (let i = 0; i < nodes.length; i++) {
    const at = nodeToTree[nodes[i]];
    if (kept[at]) self[own ? keeper[at] : at] += values[i];
  }
}

// Returns totals: each node's own value and those of all below it.
export function totalsOf(tree, self) {
  const total = self.slice();
  const { parent } = tree;
  for (let i = tree.size - 1; i > 0; i--) total[parent[i]] += total[i];
  return total;
}

// Returns the children of a node that have any weight: largest first, then by name.
export function childrenOf(tree, node, key, nameOf) {
  const sorted = (tree.sorted ||= {})[key] ||= new Map();
  let children = sorted.get(node);
  if (children) return children;
  const weight = tree.weight[key];
  children = [];
  for (let at = tree.first[node]; at >= 0; at = tree.next[at]) {
    if (weight[at] > 0) children.push(at);
  }
  const { func, key: keys } = tree;
  const byName = (a, b) => {
    const [first, second] = [nameOf(func[a]), nameOf(func[b])];
    return first < second ? -1 : first > second ? 1 : keys[a] - keys[b];
  };
  children.sort((a, b) => weight[b] - weight[a] || byName(a, b));
  sorted.set(node, children);
  return children;
}

// Returns the keys on the way from the root to a node, without the root.
export function pathOf(tree, node) {
  const path = [];
  for (let at = node; at > 0; at = tree.parent[at]) path.unshift(tree.key[at]);
  return path;
}

// Returns the node at the end of a path, or the last one that is there.
export function nodeAt(tree, path) {
  let node = 0;
  for (const key of path) {
    let child = tree.first[node];
    while (child >= 0 && tree.key[child] !== key) child = tree.next[child];
    if (child < 0) break;
    node = child;
  }
  return node;
}
