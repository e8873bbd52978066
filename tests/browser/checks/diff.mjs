// A comparison: numbers of `heapprof diff`, the kinds of change, widths and the legend.
import { answer } from '../lib/heapprof.mjs';
import { flameRows, follow, tableRows, text } from '../lib/read.mjs';

export default async function ({ check, visit, isServed }) {
  await visit('numbers', 'diff', 'view=table&fold=0', (page, of) =>
    numbers(check, page, of, isServed));
  await visit('kinds of change', 'diff', 'view=table&fold=0', (page, of) => kinds(check, page, of));
  await visit('before and after', 'diff', 'fold=0', (page, of) => sides(check, page, of));
  await visit('columns', 'diff', 'view=table&fold=0', page => sort(check, page));
  await visit('nothing but noise', 'even', '', page => noise(check, page));
  await visit('a sampled side', 'mixed', '', page => mixed(check, page));
}

// Where nothing changed, the page says what sampling could not see, as `diff` does.
async function noise(check, page) {
  const change = await page.tid('change').textContent();
  check(change.endsWith('Nothing changed by more than sampling can tell apart.'), change);
  const about = await page.tid('about').textContent();
  const wanted = 'A growth of less than about 2.5 MiB in a function, or 9.5 MiB in all, ' +
    'would not show.';
  check(about.includes(wanted), about);
}

async function mixed(check, page) {
  const badge = await page.tid('exactness').textContent();
  check.equal(badge, '≈ estimate: before exact, after 1 per 512 KiB', 'both sides are named');
}

// Rows of `diff` that changed, with what they were before and after.
function changed(base, last, ...flags) {
  const found = answer('diff', '-n', '0', ...flags, base, last);
  return found.rows.filter(row => row.before !== row.after)
    .map(row => [row.function, row.before, row.after, row.status]);
}

async function numbers(check, page, { base, last }, isServed) {
  for (const type of ['inuse_space', 'alloc_space', 'inuse_objects', 'alloc_objects']) {
    const [family, kind] = type.split('_');
    await follow(page, `view=table&fam=${family}&unit=${kind}&fold=0`);
    const rows = (await tableRows(page)).filter(row => row.delta)
      .map(row => [row.name, row.before, row.after]);
    const wanted = changed(base, last, '-t', type).map(row => row.slice(0, 3));
    check.same(sorted(rows), sorted(wanted), `${type}: rows as in diff`);
  }
  if (isServed) {
    const chosen = await page.$$eval('header select', all => all.map(({ value }) => value));
    check.same(chosen, [last, base], 'the head names both');
  } else {
    check((await text(page, 'header')).includes('→'), 'the head names both');
  }
  await page.keyboard.press('1');
  await follow(page, 'view=flame&fold=0');
  const [root] = await flameRows(page);
  check.same([root.before, root.value],
    [answer('top', base).total, answer('top', last).total], 'the totals');
}

async function kinds(check, page, { base, last }) {
  const rows = answer('diff', '-n', '0', base, last).rows;
  check((await page.$$eval('[aria-label="Kinds of change"] button', all => all.length)) === 4,
    'there are four kinds');
  for (const kind of ['new', 'gone', 'grown', 'shrunk']) {
    const button = page.locator(`[data-k=${kind}]`);
    await button.click();
    const isEmpty = await page.tid('empty').count() > 0;
    const shown = isEmpty ? [] : (await tableRows(page)).filter(row => row.delta);
    const right = { new: row => !row.before, gone: row => !row.after,
      grown: row => row.before && row.after > row.before,
      shrunk: row => row.after && row.after < row.before }[kind];
    const wanted = rows.filter(row => row.before !== row.after && right(row));
    check.equal(shown.map(row => row.name).sort().join(),
      wanted.map(row => row.function).sort().join(), `only ${kind} (${wanted.length})`);
    await button.click();
  }
  check(await page.tid('legend').isVisible(), 'there is a legend');
  check.equal(await text(page, 'legend'), '▼ less▲ more', 'it says what signs mean');
}

async function sides(check, page, { base, last }) {
  const totals = { before: answer('top', base).total, after: answer('top', last).total };
  for (const side of ['before', 'after']) {
    await page.locator(`[data-testid=compare] [data-k=${side}]`).click();
    await page.settled();
    check.equal((await flameRows(page))[0].value, totals[side], `${side} alone`);
    check.equal(await page.tid('legend').count(), 0, 'has no legend');
  }
  await page.locator('[data-testid=compare] [data-k=diff]').click();
  for (const width of ['before', 'delta', 'after']) {
    await page.locator(`[aria-label=Width] [data-k=${width}]`).click();
    await page.settled();
    const [root] = await flameRows(page);
    check.same([root.before, root.value], [totals.before, totals.after], `widths by ${width}`);
  }
}

async function sort(check, page) {
  const heads = await page.$$eval('[data-sort]', all => all.map(head => head.dataset.sort));
  check.equal(heads.join(), 'delta,a,b,gr,dc,name', 'the columns');
  const growth = row => row.before ? (row.after - row.before) / row.before
    : row.after ? Infinity : 0;
  const values = {
    delta: row => Math.abs(row.delta), a: row => row.before, b: row => row.after, gr: growth,
    dc: row => Math.abs(row.cum - row.cumBefore), name: row => row.name,
  };
  for (const key of heads) {
    if (key !== 'delta') await page.locator(`[data-sort=${key}]`).click();
    const order = await page.locator('th[aria-sort]').getAttribute('aria-sort');
    const rows = (await tableRows(page)).map(values[key]);
    check(rows.every((value, i) => !i || (order === 'descending' ? rows[i - 1] >= value
      : rows[i - 1] <= value)), `sorted by ${key}, ${order}`);
  }
}

function sorted(rows) {
  return rows.sort((a, b) => a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] - b[1]);
}
