// The panel beside the view: callers and callees of `heapprof peek`, lines of `top -g lines`.
import { answer } from '../lib/heapprof.mjs';
import { MAIN } from '../lib/pages.mjs';
import { follow, listRows, selectedName } from '../lib/read.mjs';

const escaped = name => name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

export default async function ({ check, visit }) {
  for (const name of [...MAIN, 'recursion', 'perl']) {
    await visit('the panel', name, 'view=table&fold=0&a=-1', (page, of) =>
      functions(check, page, of));
  }
}

async function functions(check, page, { last }) {
  const { rows } = answer('top', '-n', '0', last);
  const lines = answer('top', '-n', '0', '-g', 'lines', last).rows;
  const used = rows.filter(row => row.flat || row.cum);
  const asked = [...used.slice(0, 6), ...used.filter(row => row.cum > row.flat).slice(0, 4)];
  for (const one of asked) {
    const { function: name, file } = one;
    const isIt = row => row.function === name && row.file === file;
    const wanted = answer('peek', `^${escaped(name)}$`, last).rows.find(isIt);
    const sel = `${name}\n${shownPath(file ?? '')}`;
    const hash = new URLSearchParams({ view: 'table', fold: 0, a: -1, sel });
    await follow(page, hash.toString());
    check.equal(await selectedName(page), name, `${name} is selected`);
    const values = page.tid('panel-values');
    const shown = [await values.getAttribute('data-flat'), await values.getAttribute('data-cum')];
    check.same(shown.map(Number), [wanted.flat, wanted.cum], 'flat and cum');
    for (const side of ['callers', 'callees']) {
      const own = row => row[0] === '(its own allocations)' || row[0] === '(itself)';
      const list = (await listRows(page, side)).filter(row => !own(row));
      const first = wanted[side].map(row => [row.function, row.value]).filter(row => row[1]);
      if (!first.length) check.equal(list.length, 0, `no ${side}`);
      else check.same(list.map(row => row[1]), first.slice(0, 6).map(row => row[1]), side);
      const known = new Set(first.map(row => JSON.stringify(row)));
      check(list.every(row => known.has(JSON.stringify(row))), `their names`);
    }
    const own = byLine(lines.filter(isIt)).slice(0, 8);
    const listed = (await listRows(page, 'lines')).map(row => row[1]);
    if (own.length) check.same(listed, own, 'lines as in top -g lines');
  }
}

// Returns a path as a page has it, which leaves out the name of the home folder.
function shownPath(path) {
  const home = process.env.HOME + '/';
  return path.startsWith(home) ? '~/' + path.slice(home.length) : path;
}

// Returns the values of a function's lines, largest first.
function byLine(rows) {
  const sums = new Map();
  for (const { line, flat } of rows) sums.set(line ?? 0, (sums.get(line ?? 0) || 0) + flat);
  return [...sums.values()].filter(Boolean).sort((a, b) => b - a);
}
