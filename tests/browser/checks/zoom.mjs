// Zooming, the way back, inverting, flipping, and the pivot.
import { answer } from '../lib/heapprof.mjs';
import { MAIN } from '../lib/pages.mjs';
import { choices, clickRow, flameRows, selectedName, text } from '../lib/read.mjs';

export default async function ({ check, visit }) {
  for (const name of MAIN) {
    const hash = 'view=flame&fold=0&a=-1';
    await visit('zoom and back', name, hash, page => zoom(check, page));
    await visit('pivot', name, hash, (page, of) => pivot(check, page, of));
    await visit('inverted and flip', name, hash, (page, of) => inverted(check, page, of));
  }
}

async function zoom(check, page) {
  const all = await flameRows(page);
  await clickRow(page, 2);
  const [box] = await flameRows(page);
  const path = (await choices(page)).getAll('zoom');
  check(box.value <= all[0].value && path.length === 2, `a click zooms: ${path.join(' › ')}`);
  check.equal(box.name, path[1].split('\n')[0], 'the table beside it begins there');
  check.equal(await selectedName(page), box.name, 'and it selects');
  await page.tid('crumbs').locator('button').nth(1).click();
  await page.settled();
  check.equal((await choices(page)).getAll('zoom').join(), path[0], 'a breadcrumb leads back');
  await page.tid('crumbs').locator('button').first().click();
  await page.settled();
  check.same(await flameRows(page), all, 'the first one leads to the whole');
  await clickRow(page, 2);
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  check.equal((await choices(page)).getAll('zoom').length, 0, 'so does Escape');
}

// The function in the middle has its cum, and the boxes above it are its callers' shares of that.
async function pivot(check, page, { last }) {
  const { rows } = answer('top', '-n', '0', '--sort', 'cum', last);
  const [asked] = answer('peek', '^' + escaped(rows[Math.min(2, rows.length - 1)].function) + '$',
    last).rows;
  await page.keyboard.press('2');
  await page.locator(`tr[data-name="${asked.function.replaceAll('"', '\\"')}"]`).first().click();
  await page.keyboard.press('p');
  await page.settled();
  check((await text(page, 'crumbs')).startsWith('Pivot on '), 'P pivots');
  const boxes = await flameRows(page);
  check.equal(boxes[0].value, asked.cum, `${asked.function} has its cum in the middle`);
  const callers = boxes.filter(({ id, level }) => id.startsWith('up-') && level === 2)
    .map(({ name, value }) => [name, value]);
  const wanted = asked.callers.map(caller => [caller.function, caller.value])
    .filter(([name, value]) => name !== '(root)' && value >= 0.004 * asked.cum);
  check(!wanted.length || callers.length > 0, 'callers are above it, or it has none');
  if (wanted.length) check.same(sorted(callers), sorted(wanted), 'callers as in `peek`');
  await page.keyboard.press('Escape');
  check(!(await text(page, 'crumbs')).includes('Pivot'), 'Escape leaves the pivot');
}

async function inverted(check, page, { last }) {
  const flat = new Map(answer('top', '-n', '0', last).rows.map(row => [row.function, row.flat]));
  await page.keyboard.press('i');
  await page.settled();
  check.equal(await page.tid('invert').getAttribute('aria-pressed'), 'true', 'I inverts');
  const first = (await flameRows(page)).filter(({ level }) => level === 2);
  check.same(first.map(({ name, value }) => [name, value]),
    first.map(({ name }) => [name, flat.get(name)]), 'the first boxes have their flat');
  await page.keyboard.down('Shift');
  await clickRow(page, 1);
  await page.keyboard.up('Shift');
  check.equal((await choices(page)).get('piv'), first[0].name, 'Shift and a click pivot');
  await page.keyboard.press('Escape');
  await page.keyboard.press('f');
  await page.settled();
  check.equal(await page.tid('flip').getAttribute('aria-pressed'), 'true', 'F flips');
  check.equal((await choices(page)).get('flip'), '1', 'flip is in the address');
}

function sorted(rows) {
  return rows.sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}

const escaped = name => name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
