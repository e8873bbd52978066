// Answers one question about a profile: this type, these filters, these snapshots.

import { addSelf, keptNodes, shapeOf, totalsOf } from './call_tree.js';
import { totalOf } from './profile.js';

// Returns the answer: the tree with values, and flat and cum for each function.
// A question is {measure, companion, before, after, own, focus, ignore}.
export function buildModel(profile, question) {
  const shape = shapeOf(profile, false, question.own);
  const kept = keptNodes(profile, shape, question.focus, question.ignore);
  const tree = answeringTree(profile, shape, kept, question);
  const model = { profile, shape, question, kept, tree, isDiff: question.before >= 0 };
  const kinds = model.isDiff ? ['before', 'after', 'objects'] : ['after', 'objects'];
  const sums = { before: emptySums(profile) };
  for (const kind of kinds) sums[kind] = functionSums(profile, tree, kind);
  model.flat = { before: sums.before.flat, after: sums.after.flat, objects: sums.objects.flat };
  model.cum = { before: sums.before.cum, after: sums.after.cum, objects: sums.objects.cum };
  model.total = { before: tree.before[0], after: tree.after[0], objects: tree.objects[0] };
  model.whole = {
    after: wholeOf(profile, question.after, question.measure),
    before: model.isDiff ? wholeOf(profile, question.before, question.measure) : 0,
  };
  return model;
}

// Returns the tree of the answer with one node for each source line. The model keeps it.
export function lineTree(model) {
  if (!model.lines) {
    const { profile, question } = model;
    const shape = shapeOf(profile, true, question.own);
    const kept = keptNodes(profile, shape, question.focus, question.ignore);
    model.lines = answeringTree(profile, shape, kept, question);
  }
  return model.lines;
}

function answeringTree(profile, shape, kept, question) {
  const nothing = new Float64Array(shape.size);
  const selfOf = (snapshot, measure) => {
    if (snapshot < 0 || !measure) return nothing;
    const self = new Float64Array(shape.size);
    const column = profile.samplesOf(snapshot, measure.index);
    addSelf(profile, shape, column, kept, question.own, self);
    return self;
  };
  const self = {
    before: selfOf(question.before, question.measure),
    after: selfOf(question.after, question.measure),
    objects: selfOf(question.after, question.companion),
  };
  return measuredTree(shape, self, question.before >= 0);
}

// Returns flat values of each function in another snapshot or type, under the same filters.
export function flatValues(model, snapshot, measure) {
  const { profile, shape, kept, question } = model;
  const flat = new Float64Array(profile.functionCount);
  const { nodes, values } = profile.samplesOf(snapshot, measure.index);
  const target = question.own ? shape.keeper : null;
  for (let i = 0; i < nodes.length; i++) {
    const at = shape.nodeToTree[nodes[i]];
    if (kept[at]) flat[shape.func[target ? target[at] : at]] += values[i];
  }
  return flat;
}

// Puts values on a tree: totals, and weights that widths are drawn from.
export function measuredTree(shape, self, isDiff) {
  const tree = {
    size: shape.size, key: shape.key, byLine: shape.byLine, func: shape.func,
    parent: shape.parent, first: shape.first, next: shape.next,
    isOutermost: shape.isOutermost, nodeToTree: shape.nodeToTree,
    self,
    after: totalsOf(shape, self.after),
    objects: totalsOf(shape, self.objects),
  };
  tree.before = isDiff ? totalsOf(shape, self.before) : self.before;
  tree.weight = { after: weightOf(shape, self.after, tree.after) };
  if (isDiff) {
    tree.weight.before = weightOf(shape, self.before, tree.before);
    tree.weight.delta = totalsOf(shape, self.after.map((v, i) => Math.abs(v - self.before[i])));
  }
  return tree;
}

// Returns the largest functions of an array of values, by index.
export function largest(values, count) {
  const found = [];
  for (let f = 0; f < values.length; f++) if (values[f] > 0) found.push(f);
  return found.sort((a, b) => values[b] - values[a] || a - b).slice(0, count);
}

// Weights are the totals. If values have both signs, weights are sums regardless of sign, because
// a box must not be wider than the box it stands in.
function weightOf(shape, self, total) {
  for (let i = 0; i < self.length; i++) {
    if (self[i] < 0) return totalsOf(shape, self.map(Math.abs));
  }
  return total;
}

// Sums flat and cum. A function counts once for each stack, even if it calls itself.
function functionSums(profile, tree, kind) {
  const { flat, cum } = emptySums(profile);
  const { func, isOutermost } = tree;
  const self = tree.self[kind];
  const total = tree[kind];
  for (let i = 1; i < tree.size; i++) {
    flat[func[i]] += self[i];
    if (isOutermost[i]) cum[func[i]] += total[i];
  }
  return { flat, cum };
}

function emptySums(profile) {
  const { functionCount } = profile;
  return { flat: new Float64Array(functionCount), cum: new Float64Array(functionCount) };
}

// Returns what shares are of: all of the profile, which filters do not change.
function wholeOf(profile, snapshot, measure) {
  const { values } = profile.samplesOf(snapshot, measure.index);
  let sum = 0;
  let size = 0;
  for (let i = 0; i < values.length; i++) {
    sum += values[i];
    size += Math.abs(values[i]);
  }
  return size > sum ? size : Math.max(size, totalOf(profile, snapshot, measure.index));
}
