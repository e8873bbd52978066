// Chooses which trees the flame graph shows: calls, callers first, or both around a function.

import { nodeAt } from './call_tree.js';
import { calleesTree, callersTree, invertedTree } from './callers.js';
import { lineTree } from './model.js';

// Returns {down, up, key, zoom}. The trees are kept in the model until it is built anew.
export function treesFor(app) {
  const { model, state } = app;
  const kept = model.flameTrees ||= {};
  const kind = state.pivot >= 0 ? 'pivot ' + state.pivot : state.inverted ? 'inverted' : 'calls';
  const name = state.byLine ? kind + ' by line' : kind;
  kept[name] ||= makeTrees(model, state);
  const trees = kept[name];
  const key = model.isDiff ? state.width : 'after';
  return { ...trees, key, zoom: nodeAt(trees.down, state.zoom) };
}

// Returns what a search found: the share of the drawn weight and the values that go with it. Of
// matches inside each other only the outermost counts.
export function foundTotals({ down, key }, found) {
  const inside = new Uint8Array(down.size);
  const sum = { weight: 0, before: 0, after: 0, count: 0 };
  for (let node = 0; node < down.size; node++) {
    const f = down.func[node];
    if (node > 0 && inside[down.parent[node]]) inside[node] = 1;
    else if (f >= 0 && found[f] && down.weight[key][node] > 0) {
      inside[node] = 1;
      sum.weight += down.weight[key][node];
      sum.before += down.before[node];
      sum.after += down.after[node];
      sum.count++;
    }
  }
  return { ...sum, share: sum.weight / (down.weight[key][0] || 1) };
}

// Returns the node that an arrow key leads to from another one.
export function neighbourNode(tree, node, direction, childrenOfNode) {
  if (direction === 'down') return childrenOfNode(node)[0] ?? node;
  const parent = tree.parent[node];
  if (parent < 0) return node;
  if (direction === 'up') return parent;
  const siblings = childrenOfNode(parent);
  const at = siblings.indexOf(node) + (direction === 'right' ? 1 : -1);
  return siblings[at] ?? node;
}

function makeTrees(model, state) {
  const tree = state.byLine ? lineTree(model) : model.tree;
  const { pivot } = state;
  if (pivot >= 0) {
    return { down: calleesTree(model, tree, pivot), up: callersTree(model, tree, pivot) };
  }
  return { down: state.inverted ? invertedTree(model, tree) : tree, up: null };
}
