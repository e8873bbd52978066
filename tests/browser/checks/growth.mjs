// Growth: the verdicts that were planted, and numbers of `heapprof top` in each moment.
import { answer } from '../lib/heapprof.mjs';
import { filter, selectedName, text } from '../lib/read.mjs';

const PLANTED = {
  'session.Begin': 'steady growth', 'session.Remember': 'steady growth',
  'queue.Grow': 'grows in steps', 'cache.Load': 'levels off', 'report.Build': 'burst, freed',
  'config.Read': 'no trend',
};

export default async function ({ check, visit }) {
  await visit('verdicts', 'series', 'view=growth', (page, of) => verdicts(check, page, of));
  await visit('use', 'series', 'view=growth', page => use(check, page));
}

async function verdicts(check, page, { profiles }) {
  const rows = await page.$$eval('[data-testid=growth-table] tr[data-f]', all => all.map(row => ({
    name: row.dataset.name, verdict: row.dataset.verdict, slope: Number(row.dataset.slope),
    values: ['first', 'last', 'max'].map(key => Number(row.dataset[key])),
    grew: row.cells[3].textContent, fit: Number(row.cells[4].textContent),
  })));
  for (const [name, verdict] of Object.entries(PLANTED)) {
    check.equal(rows.find(row => row.name === name)?.verdict, verdict, `${name}: ${verdict}`);
  }
  const moments = profiles.map(one => new Map(answer('top', '-n', '0', one).rows
    .map(row => [row.function, row.flat])));
  for (const row of rows) {
    const values = moments.map(moment => moment.get(row.name) || 0);
    check.same(row.values, [values[0], values.at(-1), Math.max(...values)],
      `${row.name}: first, last and largest are those of top`);
    const grew = values.filter((value, i) => i && value > values[i - 1]).length;
    check.equal(row.grew, `${grew} of ${values.length - 1}`, `${row.name}: ${row.grew}`);
    const { slope, fit } = line(values);
    check(Math.abs(row.slope - slope * 3600) <= Math.abs(slope) * 0.36 + 1e-6,
      `${row.name}: the slope ${row.slope} is that of a line`);
    check(Math.abs(row.fit - fit) < 0.0051, `${row.name}: so is its fit ${row.fit}`);
  }
  const order = ['steady growth', 'grows in steps', 'levels off', 'burst, freed', 'no trend'];
  const ranks = rows.map(({ verdict }) => Math.min(3, order.indexOf(verdict)));
  check(ranks.every((rank, i) => !i || ranks[i - 1] <= rank), 'the worst come first');
}

// Fits a line through values that are a second apart.
function line(values) {
  const middle = (values.length - 1) / 2;
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  let [xy, xx, yy] = [0, 0, 0];
  values.forEach((value, i) => {
    xy += (i - middle) * (value - mean);
    xx += (i - middle) ** 2;
    yy += (value - mean) ** 2;
  });
  return { slope: xy / xx, fit: yy ? xy ** 2 / (xx * yy) : 0 };
}

async function use(check, page) {
  await page.tid('search').fill('session');
  await page.settled();
  const names = await page.$$eval('tr[data-f]', all => all.map(row => row.dataset.name));
  check(names.length > 0 && names.every(name => name.includes('session')), 'search works here');
  await page.tid('search').fill('');
  await page.locator('tr[data-f]').first().click();
  check.equal(await selectedName(page), 'session.Begin', 'a click fills the panel');
  check((await text(page, 'panel')).includes('Over time'), 'which has a line over time');
  await page.locator('tr[data-f]').first().press('ArrowDown');
  check((await selectedName(page)) !== 'session.Begin', 'an arrow moves on');
  await filter(page, 'focus', 'session');
  check((await text(page, 'tools')).includes('of the whole profile'), 'filters change no verdict');
}
