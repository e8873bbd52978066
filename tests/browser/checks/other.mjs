// "(other)" in a page of `heapprof web` is opened, and "(other)" within it: the sums add up.
import { answer } from '../lib/heapprof.mjs';
import { openOther, others } from '../lib/other.mjs';
import { filter, flameRows, tableRows, text } from '../lib/read.mjs';
import { startWeb } from '../lib/served.mjs';

const HASH = 'view=flame&fold=0';
const DEEPEST = 6;

export default async function ({ check, visit, pages }) {
  for (const name of ['go', 'plain', 'diff']) {
    const { base, profile } = pages[name];
    const server = await startWeb('--max-nodes', '30', base ? ['--base', base] : [], profile);
    const hash = HASH + (base ? '&a=-1' : '');
    await visit(`each (other) of ${name}`, server.address, hash, page => each(check, page, hash));
    await visit(`(other) in (other) of ${name}`, server.address, hash, page =>
      nested(check, page, hash, profile));
    await server.stop();
  }
}

const total = async page => (await flameRows(page))[0].value;
const isInside = async page => (await text(page, 'tools')).includes('Inside');

async function press(page, words) {
  await page.getByText(words).click();
  await page.settled();
}

async function each(check, page, hash) {
  const whole = await total(page);
  const found = await others(page);
  check(found.length > 0, `there are ${found.length}`);
  for (const other of found) {
    await openOther(page, hash, other);
    const isRight = await isInside(page) && await total(page) === other.value;
    check(isRight, `what it stands for is what it holds: ${other.value}`);
    await press(page, 'back to the whole');
    const isBack = !await isInside(page) && await total(page) === whole;
    check(isBack, 'and there is a way back');
  }
}

async function nested(check, page, hash, profile) {
  let asked = null;
  page.on('request', request => {
    asked = JSON.parse(new URL(request.url()).searchParams.get('path'));
  });
  const whole = await total(page);
  const chain = [];
  const values = [];
  while (chain.length < DEEPEST) {
    const [other] = await others(page);
    if (!other) break;
    await openOther(page, hash, other, true);
    chain.push(other.path.slice(0, -1));
    values.push(other.value);
    check.equal(JSON.stringify(asked), JSON.stringify(chain.length > 1 ? chain : chain[0]),
      `part ${chain.length} asks for its path`);
    check.equal(await total(page), other.value, `and holds what its (other) held: ${other.value}`);
    await page.keyboard.press('2');
    const sum = (await tableRows(page)).reduce((all, row) => all + row.flat, 0);
    check.equal(sum, other.value, 'so does its table');
    await page.keyboard.press('1');
    await page.settled();
  }
  check(chain.length > 1, `there are ${chain.length} parts, one within the other`);
  for (const value of values.slice(0, -1).reverse()) {
    await press(page, 'one level up');
    check.equal(await total(page), value, 'a part up is the one before');
  }
  check.equal(await page.getByText('one level up').count(), 0, 'the first is in no other');
  await filter(page, 'focus', 'main');
  const kept = answer('top', '-n', '0', '--focus', 'main', profile).rows
    .reduce((all, row) => all + row.flat, 0);
  check(!await isInside(page) && await total(page) === kept, 'a filter is of the whole');
  await filter(page, 'focus', '');
  check.equal(await total(page), whole, 'which comes back without it');
}
