// The flame graph by line: a box for each source line, with the values of `heapprof top -g lines`.
import { answer } from '../lib/heapprof.mjs';
import { openPage } from '../lib/browser.mjs';
import { MAIN } from '../lib/pages.mjs';
import { choices, clickRow, flameRows } from '../lib/read.mjs';

export default async function ({ check, visit, browser }) {
  for (const name of MAIN) {
    const hash = 'view=flame&fold=0&a=-1&inv=1';
    await visit('by line', name, hash, (page, of) => byLine(check, page, of));
  }
  for (const name of ['cpp', 'diff']) {
    await visit('a zoom', name, 'view=flame&lines=1', page => zoom(check, page, browser));
  }
}

// Callers first, a box of the first row has what its line allocated itself.
async function byLine(check, page, { last }) {
  const { rows } = answer('top', '-n', '0', '-g', 'lines', last);
  const wanted = rows.filter(row => row.flat > 0)
    .map(row => `${row.flat} ${row.function}:${row.line}`);
  const isThere = await page.tid('by-line').count() > 0;
  if (!isThere) {
    check(rows.every(row => !row.line), 'it has no lines, so there is no button');
    return;
  }
  await page.keyboard.press('l');
  await page.settled();
  check.equal(await page.tid('by-line').getAttribute('aria-pressed'), 'true', 'L shows lines');
  const lines = await page.$$eval('[data-testid=flame-mirror] tbody tr[aria-level="2"]', all =>
    all.map(row => `${row.dataset.value} ${row.dataset.name}:${row.dataset.line}`));
  check(lines.length > 0 && lines.every(line => wanted.includes(line)),
    `the boxes are the rows of top -g lines: ${lines.length}, ${lines[0]}`);
  await page.keyboard.press('l');
  await page.settled();
  check.equal((await choices(page)).get('lines'), null, 'L again shows functions');
}

// A zoom is kept in the address with its lines.
async function zoom(check, page, browser) {
  await clickRow(page, 3);
  const path = (await choices(page)).getAll('zoom');
  check(path.length === 3 && path.every(step => /^\d+ /.test(step)), `lines: ${path.join(' › ')}`);
  const boxes = await flameRows(page);
  const again = await openPage(browser, page.url());
  await again.settled();
  check.same(await flameRows(again), boxes, 'a link shows the same');
  await again.end();
}
