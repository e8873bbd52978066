// Decides which boxes of a flame graph are drawn, and where. It looks only at boxes wide enough to
// be seen, so that its work does not grow with the profile.

import { childrenOf } from './call_tree.js';

export const ROW = 19;
const LEAST_WIDTH = 0.7;

// What a box belongs to: the tree downwards, the callers above a pivot, or what is above a zoom.
export const DOWN = 0;
export const UP = 1;
export const ABOVE = 2;

// Lays a tree out. `zoom` is the node that fills the width; `up` is the tree of callers or null.
export function layFlame({ down, up, key, zoom, width, nameOf }) {
  const boxes = [];
  let upRows = 0;
  if (up) {
    const above = visibleBoxes(up, key, 0, width, nameOf);
    upRows = Math.max(...above.map(box => box.depth));
    for (const box of above) {
      if (box.depth > 0) boxes.push(boxAt(up, UP, box, upRows - box.depth));
    }
  }
  const ancestors = ancestorsOf(down, zoom);
  ancestors.forEach((node, i) => {
    const wide = { node, x: 0, width, depth: i };
    boxes.push(boxAt(down, ABOVE, wide, upRows + i));
  });
  const first = upRows + ancestors.length;
  for (const box of visibleBoxes(down, key, zoom, width, nameOf)) {
    boxes.push(boxAt(down, DOWN, box, first + box.depth));
  }
  return { boxes, rows: rowsOf(boxes), upRows, zoomRow: first };
}

// Finds the box at a place, or null.
export function boxUnder(layout, x, row) {
  const boxes = layout.rows[row] || [];
  return boxes.find(box => x >= box.x && x < box.x + box.width) || null;
}

// Returns the nodes that are at least `least` of the zoomed node's weight, in pre-order.
export function largeNodes(tree, key, zoom, least, limit, nameOf) {
  const cut = tree.weight[key][zoom] * least;
  const found = [];
  const open = [[zoom, 1]];
  while (open.length && found.length < limit) {
    const [node, level] = open.pop();
    found.push([node, level]);
    const children = childrenOf(tree, node, key, nameOf).filter(c => tree.weight[key][c] >= cut);
    for (let i = children.length - 1; i >= 0; i--) open.push([children[i], level + 1]);
  }
  return found;
}

function boxAt(tree, part, { node, x, width }, row) {
  return { tree, part, node, x, width, row };
}

function ancestorsOf(tree, node) {
  const found = [];
  for (let at = tree.parent[node]; at >= 0; at = tree.parent[at]) found.unshift(at);
  return found;
}

function visibleBoxes(tree, key, zoom, width, nameOf) {
  const weight = tree.weight[key];
  const scale = width / (weight[zoom] || 1);
  const boxes = [];
  const open = [{ node: zoom, x: 0, width, depth: 0 }];
  while (open.length) {
    const box = open.pop();
    boxes.push(box);
    if (weight[zoom] <= 0) break;
    const children = [];
    let x = box.x;
    for (const node of childrenOf(tree, box.node, key, nameOf)) {
      const wide = weight[node] * scale;
      if (wide < LEAST_WIDTH) break;
      children.push({ node, x, width: wide, depth: box.depth + 1 });
      x += wide;
    }
    for (let i = children.length - 1; i >= 0; i--) open.push(children[i]);
  }
  return boxes;
}

function rowsOf(boxes) {
  const rows = [];
  for (const box of boxes) (rows[box.row] ||= []).push(box);
  return rows;
}
