// The summary has the totals and the sizes of `heapprof stats`.
import { answer } from '../lib/heapprof.mjs';
import { MAIN } from '../lib/pages.mjs';
import { text } from '../lib/read.mjs';
import { isText, unitOf } from '../lib/text.mjs';

export default async function ({ check, visit }) {
  for (const name of [...MAIN, 'waves', 'sampled', 'perl']) {
    await visit('tiles', name, 'view=sizes&fold=0&a=-1', (page, of) => tiles(check, page, of));
  }
  for (const name of ['waves', 'cpp', 'rust', 'sampled', 'perl']) {
    await visit('sizes', name, 'view=sizes&a=-1', (page, of) => sizes(check, page, of));
  }
  await visit('sizes by mean', 'go', 'view=sizes', async page => {
    check((await text(page, 'histogram')).includes('sizes'), 'it says what sizes are of');
  });
  await visit('other types', 'cpu', 'view=sizes', async page => {
    check.equal(await page.tid('tile-cpu-own').count(), 1, 'tiles of its types');
  });
}

async function tiles(check, page, { last }) {
  for (const type of ['inuse_space', 'alloc_space', 'temporary_space', 'inuse_objects']) {
    const tile = page.tid('tile-' + type.replace('_', '-'));
    const total = await tile.getAttribute('data-total');
    if (total == null) {
      const words = await tile.textContent();
      check(/does not say|Not in this profile/.test(words), `${type}: it is not in the profile`);
      continue;
    }
    const { rows, total: wanted } = answer('top', '-n', '5', '-t', type, last);
    check.equal(Number(total), wanted, `${type}: the total`);
    check(isText(await tile.locator('.tot').textContent(), wanted, unitOf(type)), 'in words');
    const shown = await tile.locator('.row').evaluateAll(all =>
      all.map(row => [row.dataset.name, Number(row.dataset.value)]));
    const first = rows.filter(row => row.flat > 0).map(row => [row.function, row.flat]);
    const values = shown.map(row => row[1]);
    if (first.length) check.same(values, first.map(row => row[1]), `${type}: rows`);
  }
}

async function sizes(check, page, { last }) {
  const { sizes: wanted } = answer('stats', last);
  const bars = await page.$$eval('[data-testid=histogram] .hist', all => all.map(chart =>
    [...chart.children].map(bar => [Number(bar.dataset.class), Number(bar.dataset.value)])));
  const labels = await page.$$eval('[data-testid=histogram] .hx', all =>
    all.map(axis => axis.children.length));
  check.same(labels, bars.map(chart => chart.length), 'each bar has its label');
  if (!wanted?.length) {
    check(bars.length > 0, 'there are bars, of means');
    return;
  }
  const charts = ['inuse_objects', 'alloc_objects'].map(key => new Map(wanted
    .filter(row => row.least != null).map(row => [Math.floor(Math.log2(row.least)), row[key]])));
  for (const [i, name] of ['in use', 'allocated'].entries()) {
    const held = [...charts[i]].filter(([, count]) => count > 0);
    if (!held.length) continue;
    const [first, last] = [held[0][0], held.at(-1)[0]];
    const all = Array.from({ length: last - first + 1 }, (_, k) =>
      [first + k, charts[i].get(first + k) || 0]);
    check.same(bars.find(chart => String(chart) === String(all)) || bars[i] || [], all,
      `the histogram of sizes ${name}, as in stats`);
  }
}
