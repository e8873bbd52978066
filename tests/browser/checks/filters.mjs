// Focus, ignore and own code keep what `--focus`, `--ignore` and `--own-code` keep.
import { answer } from '../lib/heapprof.mjs';
import { MAIN } from '../lib/pages.mjs';
import { filter, tableRows, text } from '../lib/read.mjs';

const FILTERS = {
  go: ['parser.*Decl$', 'scanner'], cpp: ['trade', 'string'], rust: ['main', 'with_capacity_in'],
  diff: ['serve', 'parseOrder'], series: ['session|cache', 'Remember'],
};

export default async function ({ check, visit }) {
  for (const name of MAIN) {
    await visit('filters', name, 'view=table&fold=0&a=-1', (page, of) =>
      filters(check, page, of, ...FILTERS[name]));
  }
  await visit('nothing left', 'go', 'view=table', page => nothingLeft(check, page));
  await visit('the panel filters', 'go', 'view=table', (page, of) => panel(check, page, of));
}

async function filters(check, page, { last }, focus, ignore) {
  const whole = answer('top', '-n', '1', last).total;
  for (const [name, keep, drop] of [['focus', focus, ''], ['ignore', '', ignore],
    ['both', focus, ignore]]) {
    await filter(page, 'focus', keep);
    await filter(page, 'ignore', drop);
    const flags = [keep && ['--focus', keep], drop && ['--ignore', drop]].filter(Boolean).flat();
    await same(check, page, last, flags, name, whole);
  }
  if (!await page.tid('fold').count()) return;
  await page.tid('fold').click();
  const both = ['--focus', focus, '--ignore', ignore, 'own'];
  await same(check, page, last, both, 'both and own code', whole);
}

async function same(check, page, profile, flags, words, whole) {
  const wanted = answer('top', '-n', '0', ...flags, profile).rows;
  const list = (rows, key) => rows.filter(({ flat, cum }) => flat || cum)
    .map(row => [row[key], row.flat, row.cum]).sort((a, b) => a[0] < b[0] ? -1 : 1);
  const rows = await tableRows(page);
  check.same(list(rows, 'name'), list(wanted, 'function'), `${words}: rows as in top`);
  const kept = wanted.reduce((sum, row) => sum + row.flat, 0);
  const share = Number(await page.tid('share').getAttribute('data-share'));
  check(Math.abs(share - kept / whole) < 1e-9, `${words}: shown is ${(100 * share).toFixed(1)} %`);
}

async function nothingLeft(check, page) {
  await filter(page, 'focus', 'nosuchthing');
  for (const view of ['flame', 'table', 'map']) {
    await page.tid('tab-' + view).click();
    check((await text(page, 'empty')).includes('keeps 0 of 220 MiB'), `${view} says why`);
  }
  await page.getByText('Clear the filters').click();
  await page.settled();
  check.equal(await page.tid('empty').count(), 0, 'and there is a way out');
}

async function panel(check, page, { last }) {
  await page.locator('tr[data-f]').nth(1).click();
  const name = await page.tid('panel-name').getAttribute('data-name');
  await page.tid('focus-on').click();
  await page.settled();
  const pattern = await page.tid('focus').inputValue();
  const wanted = answer('top', '-n', '0', '--focus', pattern, last).rows;
  const rows = await tableRows(page);
  check.equal(rows.length, wanted.length, `Focus on ${name} keeps what the same pattern keeps`);
}
