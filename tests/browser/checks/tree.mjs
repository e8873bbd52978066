// The flame graph has the boxes of `heapprof tree`, from the roots and from the leaves.
import { answer } from '../lib/heapprof.mjs';
import { MAIN } from '../lib/pages.mjs';
import { flameRows } from '../lib/read.mjs';

const LEAST = 0.004;

export default async function ({ check, visit }) {
  for (const name of [...MAIN, 'recursion', 'perl']) {
    await visit('boxes', name, 'view=flame&fold=0&a=-1', (page, of) =>
      boxes(check, page, of, []));
    await visit('boxes, inverted', name, 'view=flame&fold=0&a=-1&inv=1', (page, of) =>
      boxes(check, page, of, ['--reverse']));
  }
}

// The table beside the graph has boxes of at least 0.4 % of the whole, at most 400. Functions of
// one name in several files are boxes of their own, so boxes are compared as a list.
async function boxes(check, page, { last }, flags) {
  const { rows, total } = answer('tree', '--min-percent', '0', ...flags, last);
  const shown = await flameRows(page);
  check.equal(shown[0].value, total, 'the root has the total');
  const path = [];
  const known = [];
  for (const row of rows) {
    path.length = row.depth;
    path.push(row.function);
    if (row.total >= LEAST * total) known.push([path.join('\n'), row.total]);
  }
  const here = [];
  const found = shown.slice(1).map(({ name, level, value }) => {
    here.length = level - 2;
    here.push(name);
    return [here.join('\n'), value];
  });
  if (shown.length < 400) {
    check.same(found.sort(), known.sort(), 'every box as in tree');
  } else {
    const all = new Set(known.map(box => JSON.stringify(box)));
    const strange = found.filter(box => !all.has(JSON.stringify(box)));
    check.equal(JSON.stringify(strange.slice(0, 3)), '[]', 'each box as in tree');
  }
}
