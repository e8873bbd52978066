// The timeline has the moments of `heapprof timeline`: of a series, and of one recording's history.
import { answer } from '../lib/heapprof.mjs';
import { cardAt, isPainted } from '../lib/read.mjs';
import { isText } from '../lib/text.mjs';

export default async function ({ check, visit }) {
  await visit('a series', 'series', 'view=timeline&fold=0', (page, of) => series(check, page, of));
  for (const name of ['waves', 'cpp', 'rust', 'source']) {
    await visit('a history', name, 'view=timeline', (page, of) => history(check, page, of));
  }
  await visit('no history', 'go', 'view=timeline', async page => {
    const said = await page.tid('empty').textContent();
    check(said.includes('heapprof record --interval'), 'it says how to record one');
  });
}

async function series(check, page, { profiles }) {
  // A peak between two snapshots is a row of its own.
  const { rows: all } = answer('timeline', profiles);
  const rows = all.filter(row => row.inuse_objects != null);
  const box = await page.tid('timeline-canvas').boundingBox();
  const xOf = i => box.x + 72 + (box.width - 72 - 22) * i / (rows.length - 1);
  check.equal(await page.tid('timeline-canvas').getAttribute('aria-valuemax'),
    String(rows.length), 'there are as many moments');
  const wrong = [];
  for (const [i, row] of rows.entries()) {
    const card = await cardAt(page, xOf(i), box.y + 150);
    const [since, number] = card.title.split(' · ');
    if (number !== `snapshot ${i + 1}`) wrong.push(card.title);
    const wanted = (row.since_nanos - rows[0].since_nanos) / 1e6;
    if (!isText(since, wanted, 'ms')) wrong.push(`${i} since ${since}`);
    if (!isText(card['In use'], row.inuse_space, 'bytes')) wrong.push(`${i} ${card['In use']}`);
    if (!isText(card.RSS, row.rss, 'bytes')) wrong.push(`${i} RSS ${card.RSS}`);
    const flat = new Map(answer('top', '-n', '0', profiles[i]).rows
      .map(one => [one.function, one.flat]));
    for (const [name, words] of Object.entries(card)) {
      if (/\./.test(name) && !isText(words, flat.get(name) || 0, 'bytes')) {
        wrong.push(`${i} ${name} ${words}`);
      }
    }
  }
  check.equal(wrong.join('; '), '', `the card of each of ${rows.length} moments has its numbers`);
}

async function history(check, page, { last }) {
  const rows = known(answer('timeline', last).rows);
  check(await isPainted(page, 'timeline-canvas'), 'the curve is painted');
  const end = rows.at(-1);
  const peak = rows.find(row => row.peak);
  const words = await page.tid('timeline-canvas').getAttribute('aria-label');
  const found = words.match(/over (.+): from (.+) to (.+), with a peak of (.+) at (.+)$/) || [];
  check(isText(found[1], end.since_nanos / 1e6, 'ms'), `over ${found[1]}`);
  check(isText(found[2], rows[0].inuse_space, 'bytes'), `from ${found[2]}`);
  check(isText(found[3], end.inuse_space, 'bytes'), `to ${found[3]}`);
  check(isText(found[4], peak?.inuse_space, 'bytes'), `with a peak of ${found[4]}`);
  check(isText(found[5], peak?.since_nanos / 1e6, 'ms'), `at ${found[5]}`);
  const box = await page.tid('timeline-canvas').boundingBox();
  const wrong = [];
  for (const share of [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1]) {
    const x = box.x + 72 + (box.width - 72 - 22) * share;
    const card = await cardAt(page, x, box.y + 150);
    const near = rows.map(row =>
      [Math.abs(row.since_nanos / end.since_nanos - share), row]).sort((a, b) => a[0] - b[0]);
    const isRight = near.slice(0, 3).some(([, row]) =>
      isText(card['heap in use'], row.inuse_space, 'bytes') &&
      isText(card.title, row.since_nanos / 1e6, 'ms'));
    if (!isRight) wrong.push(`${share}: ${JSON.stringify(card)}, not ${JSON.stringify(near[0])}`);
  }
  check.equal(wrong.join('; '), '', 'the card at the pointer has the moment there');
}

// Fills in what is not known at a moment: it is as it was before.
function known(rows) {
  let before = {};
  return rows.map(row => {
    const inuse_space = row.inuse_space ?? before.inuse_space;
    return before = { ...row, inuse_space };
  }).filter(row => row.inuse_space != null);
}
