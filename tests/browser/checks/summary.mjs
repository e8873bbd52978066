// The summary has the totals and the sizes of `heapprof stats`.
import { answer } from '../lib/heapprof.mjs';
import { MAIN } from '../lib/pages.mjs';
import { flameRows, text } from '../lib/read.mjs';
import { isText, unitOf } from '../lib/text.mjs';

export default async function ({ check, visit }) {
  for (const name of [...MAIN, 'waves', 'sampled', 'perl']) {
    await visit('tiles', name, 'view=sizes&fold=0&a=-1', (page, of) => tiles(check, page, of));
  }
  for (const name of ['waves', 'cpp', 'rust', 'sampled', 'perl']) {
    await visit('sizes', name, 'view=sizes&a=-1', (page, of) => sizes(check, page, of));
  }
  for (const name of ['waves', 'cpp']) {
    await visit('the peak', name, 'view=sizes&fam=inuse', (page, of) => peak(check, page, of));
  }
  await visit('no peak', 'go', 'view=sizes', async page => {
    check.equal(await page.tid('tile-peak-space').count(), 0, 'a profile without one has no card');
  });
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

// The card of the peak is beside that of what is held, and its button shows the peak everywhere.
async function peak(check, page, { last }) {
  const { total } = answer('top', '-n', '0', '-t', 'peak_space', last);
  const cards = await page.$$eval('[data-testid=summary] > .card', all =>
    all.map(card => card.dataset.testid));
  check.same(cards.slice(0, 2), ['tile-inuse-space', 'tile-peak-space'], 'the first two cards');
  const tile = page.tid('tile-peak-space');
  check.equal(Number(await tile.getAttribute('data-total')), total, 'the total of the peak');
  check(isText(await tile.locator('.tot').textContent(), total, 'bytes'), 'in words');
  const isShown = () => page.tid('show-peak').getAttribute('aria-pressed');
  check.equal(await isShown(), 'false', 'what is held is shown first');
  await page.tid('show-peak').click();
  await page.settled();
  check.equal(await isShown(), 'true', 'the button shows the peak');
  await page.tid('tab-flame').click();
  await page.settled();
  const [root] = await flameRows(page);
  check.equal(root.value, total, 'the flame graph is that of the peak');
  await page.tid('tab-sizes').click();
  await page.tid('show-peak').click();
  await page.settled();
  check.equal(await isShown(), 'false', 'the button shows what is held again');
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
