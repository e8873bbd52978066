// Makes trees that run from a function up to its callers.

import { linkChildren } from './call_tree.js';
import { measuredTree } from './model.js';

// Groups that hold less than this share are not taken apart further, which bounds the work.
const LEAST_GROUP = 2e-4;

// Returns the whole profile bottom-up: first the functions that allocated, then their callers.
export function invertedTree(model, tree) {
  const { self } = tree;
  const starts = [];
  for (let i = 1; i < tree.size; i++) if (self.after[i] || self.before[i]) starts.push(i);
  return bottomUp(model, tree, -1, starts, self, node => node);
}

// Returns the callers of a function, as a tree whose root is the function.
export function callersTree(model, tree, f) {
  const starts = outermostOf(tree, f);
  return bottomUp(model, tree, f, starts, tree, node => tree.parent[node]);
}

// Returns what a function calls, as a tree whose root is the function.
export function calleesTree(model, tree, f) {
  const place = new Int32Array(tree.size).fill(-1);
  const made = { size: 1, byLine: tree.byLine, key: [-1], func: [f], parent: [-1] };
  const self = { before: [0], after: [0], objects: [0] };
  const known = new Map();
  for (let i = 1; i < tree.size; i++) {
    const under = place[tree.parent[i]];
    if (under >= 0) place[i] = child(made, self, known, under, tree, i);
    else if (tree.func[i] === f) place[i] = 0;
    if (place[i] >= 0) {
      for (const kind in self) self[kind][place[i]] += tree.self[kind][i];
    }
  }
  Object.assign(made, linkChildren(made));
  for (const kind in self) self[kind] = Float64Array.from(self[kind]);
  return measuredTree(made, self, model.isDiff);
}

function outermostOf(tree, f) {
  const found = [];
  for (let i = 1; i < tree.size; i++) {
    if (tree.func[i] === f && tree.isOutermost[i]) found.push(i);
  }
  return found;
}

function child(made, self, known, under, tree, i) {
  const pair = under * 2 ** 26 + tree.key[i];
  let at = known.get(pair);
  if (at === undefined) {
    known.set(pair, at = made.size++);
    made.key.push(tree.key[i]);
    made.func.push(tree.func[i]);
    made.parent.push(under);
    for (const kind in self) self[kind].push(0);
  }
  return at;
}

// Refines groups of stacks level by level. `stepOf` says where each start stands at first.
function bottomUp(model, tree, rootFunction, starts, values, stepOf) {
  const out = {
    size: 1, byLine: tree.byLine, key: [-1], func: [rootFunction], parent: [-1],
    before: [0], after: [0], objects: [0],
  };
  const isDiff = model.isDiff;
  const delta = isDiff ? [0] : null;
  const add = (at, start) => {
    out.after[at] += values.after[start];
    out.objects[at] += values.objects[start];
    if (!isDiff) return;
    out.before[at] += values.before[start];
    delta[at] += Math.abs(values.after[start] - values.before[start]);
  };
  for (const start of starts) add(0, start);
  const least = LEAST_GROUP * Math.max(Math.abs(out.after[0]), Math.abs(out.before[0]), 1);
  const cursor = new Map(starts.map(start => [start, stepOf(start)]));
  let level = [[0, starts]];
  while (level.length) {
    const nextLevel = [];
    for (const [under, members] of level) {
      const groups = new Map();
      for (const start of members) {
        const at = cursor.get(start);
        if (at <= 0) continue;
        let group = groups.get(tree.key[at]);
        if (!group) {
          group = [addNode(out, under, tree, at, delta), []];
          groups.set(tree.key[at], group);
        }
        add(group[0], start);
        group[1].push(start);
        cursor.set(start, tree.parent[at]);
      }
      for (const group of groups.values()) if (isLarge(out, group[0], least)) nextLevel.push(group);
    }
    level = nextLevel;
  }
  return finishedUp(out, delta);
}

function isLarge(out, at, least) {
  return Math.max(Math.abs(out.after[at]), Math.abs(out.before[at])) > least;
}

function addNode(out, under, tree, at, delta) {
  out.key.push(tree.key[at]);
  out.func.push(tree.func[at]);
  out.parent.push(under);
  out.before.push(0);
  out.after.push(0);
  out.objects.push(0);
  if (delta) delta.push(0);
  return out.size++;
}

// Self values are not known here: a box shows what passes through it.
function finishedUp(out, delta) {
  const { first, next } = linkChildren(out);
  const weight = { after: out.after.map(Math.abs) };
  if (delta) Object.assign(weight, { before: out.before.map(Math.abs), delta });
  return { ...out, first, next, weight, self: null };
}
