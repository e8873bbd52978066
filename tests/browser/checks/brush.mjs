// Dragging over two moments of a series compares them, in every view.
import { answer } from '../lib/heapprof.mjs';
import { choices, flameRows, tableRows, text } from '../lib/read.mjs';

export default async function ({ check, visit }) {
  await visit('a drag compares', 'series', 'fold=0', (page, of) => drag(check, page, of));
  await visit('drop-downs', 'series', 'view=table&fold=0', (page, of) => choose(check, page, of));
  await visit('keys', 'series', 'fold=0', page => keys(check, page));
}

// The chart begins 72 pixels from the left and ends 22 from the right.
async function places(page) {
  const box = await page.tid('timeline-canvas').boundingBox();
  return { x: i => box.x + 72 + (box.width - 72 - 22) * i / 19, y: box.y + 200 };
}

async function drag(check, page, { profiles }) {
  check.equal(await page.tid('tab-timeline').getAttribute('aria-selected'), 'true', 'opens here');
  const at = await places(page);
  await page.mouse.move(at.x(3), at.y);
  await page.mouse.down();
  await page.mouse.move(at.x(6), at.y);
  await page.mouse.move(at.x(9), at.y);
  await page.mouse.up();
  let hash = await choices(page);
  check.equal(`${hash.get('a')} ${hash.get('b')}`, '3 9', 'a drag compares its ends');
  await compares(check, page, profiles[3], profiles[9]);
  await page.keyboard.press('5');
  await page.mouse.move(at.x(12), at.y);
  await page.mouse.down();
  await page.mouse.move(at.x(4), at.y);
  await page.mouse.up();
  hash = await choices(page);
  check.equal(`${hash.get('a')} ${hash.get('b')}`, '4 12', 'a drag to the left is the same');
  await page.mouse.click(at.x(5), at.y);
  hash = await choices(page);
  check.equal(`${hash.get('a')} ${hash.get('b')}`, 'null 5', 'a click shows one moment');
  await page.keyboard.press('2');
  const { total } = answer('top', profiles[5]);
  const rows = await tableRows(page);
  check.equal(rows.reduce((sum, row) => sum + row.flat, 0), total, 'of which the table has all');
}

async function compares(check, page, before, after) {
  const wanted = answer('diff', '-n', '0', before, after).rows
    .filter(row => row.before !== row.after).map(row => [row.function, row.before, row.after]);
  await page.keyboard.press('2');
  const rows = (await tableRows(page)).filter(row => row.delta)
    .map(row => [row.name, row.before, row.after]);
  check.same(rows.sort(), wanted.sort(), 'the table follows');
  await page.keyboard.press('1');
  await page.settled();
  const [root] = await flameRows(page);
  const totals = [answer('top', before).total, answer('top', after).total];
  check.same([root.before, root.value], totals, 'the flame graph follows');
  await page.keyboard.press('4');
  const tile = page.tid('tile-inuse-space');
  check.equal(Number(await tile.getAttribute('data-total')), totals[1], 'the summary follows');
  check.equal(Number(await tile.locator('.change').getAttribute('data-delta')),
    totals[1] - totals[0], 'and says the change');
  check.equal(await page.tid('legend').count(), 0, 'no legend where nothing is coloured');
}

async function choose(check, page, { profiles }) {
  await page.tid('snap-b').selectOption('10');
  await page.tid('snap-a').selectOption('2');
  await page.settled();
  await compares(check, page, profiles[2], profiles[10]);
  await page.keyboard.press('3');
  check((await text(page, 'tools')).includes('▲ more'), 'the treemap has the legend');
}

async function keys(check, page) {
  await page.tid('timeline-canvas').focus();
  await page.keyboard.press('ArrowLeft');
  let hash = await choices(page);
  check.equal(`${hash.get('a')} ${hash.get('b')}`, 'null 18', 'an arrow moves');
  check((await page.tid('timeline-canvas').getAttribute('aria-valuetext'))
    .startsWith('snapshot 19 at 18.0 s, '), 'and is told');
  await page.keyboard.press('Shift+ArrowLeft');
  await page.keyboard.press('Shift+ArrowLeft');
  hash = await choices(page);
  check.equal([hash.get('a'), hash.get('b')].sort().join(' '), '16 18', 'Shift widens');
  await page.keyboard.press('Escape');
  check.equal((await choices(page)).get('a'), null, 'Escape ends the comparison');
}
