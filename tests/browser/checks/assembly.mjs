// The view of instructions: those of `heapprof list --asm`, with the page's type and filters.
import { axePath } from '../lib/browser.mjs';
import { answer } from '../lib/heapprof.mjs';
import { choices, filter, follow } from '../lib/read.mjs';
import { startWeb } from '../lib/served.mjs';

const escaped = name => name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

export default async function ({ check, visit, pages }) {
  await visit('no instructions in a file', 'plain', 'view=table&asm=1', page =>
    nothing(check, page));
  const closed = await startWeb(pages.plain.last);
  await visit('nor without --source', closed.address, 'view=table&asm=1', page =>
    nothing(check, page));
  const plain = await startWeb('--source', pages.plain.last);
  await visit('a program that is not here', plain.address, 'view=table&fold=0', page =>
    missing(check, page));
  await visit('hostile text', plain.address, 'view=table&fold=0', page => hostile(check, page));
  for (const server of [closed, plain]) check.equal(await server.stop(), 0, 'the server ends');
  const name = functionWithCode(pages.cpp.last);
  if (!name) {
    console.log('SKIPPED assembly: it needs g++, and a program that can be recorded');
    return;
  }
  const server = await startWeb('--source', pages.cpp.last);
  const hash = new URLSearchParams({ view: 'table', fold: 0, a: -1, sel: name }).toString();
  await visit('instructions', server.address, hash, page => shown(check, page, name, pages.cpp));
  for (const dark of [false, true]) {
    const options = { dark, context: { bypassCSP: true } };
    await visit(`axe, ${dark ? 'dark' : 'light'}`, server.address, hash + '&asm=1', page =>
      accessible(check, page), options);
  }
  check.equal(await server.stop(), 0, 'the server ends');
}

// Returns a function of the recorded program, or null if it was not recorded here.
function functionWithCode(profile) {
  const isListed = ({ function: name }) => {
    const { rows } = answer('list', '--asm', `^${escaped(name)}$`, profile);
    return rows.length === 1 && rows[0].code.length > 0;
  };
  const { rows } = answer('top', '-n', '20', profile);
  return rows.filter(row => row.flat).find(isListed)?.function ?? null;
}

async function nothing(check, page) {
  await page.locator('tr[data-f]').first().click();
  check.equal(await page.tid('panel-name').count(), 1, 'a function is selected');
  check.equal(await page.tid('assembly-button').count(), 0, 'there is no button');
  await page.keyboard.press('a');
  await page.settled();
  check.equal(await page.tid('assembly').count(), 0, 'and no key');
}

async function missing(check, page) {
  await page.locator('tr[data-f]').first().click();
  await page.tid('assembly-button').click();
  await page.settled();
  const said = (await page.tid('assembly-note').allTextContents()).join(' ');
  check(/there is no such file/.test(said), `a file that is missing is named: ${said}`);
  await page.tid('assembly-close').click();
  check.equal(await page.tid('assembly').count(), 0, 'the button closes it');
}

// Returns the rows of the view: each [line, flat, cum] or [null, flat, cum, address, text].
const rowsOf = page => page.$$eval('[data-testid=assembly-table] tr[data-flat]', rows =>
  rows.map(({ dataset, cells }) => {
    const values = [Number(dataset.flat), Number(dataset.cum)];
    if (dataset.line) return [Number(dataset.line), ...values];
    const [place, code] = [cells[3].textContent, cells[4].querySelector('bdi').textContent];
    return [null, ...values, place, code];
  }));

async function shown(check, page, name, { last }) {
  const command = (...flags) =>
    flatRows(answer('list', '--asm', ...flags, `^${escaped(name)}$`, last).rows);
  await page.tid('assembly-button').click();
  await page.settled();
  check.same(await rowsOf(page), command(), 'the rows are those of list --asm');
  check.equal((await choices(page)).get('asm'), '1', 'the address says so');
  const focused = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ??
    document.activeElement.dataset.testid);
  check.equal(await focused(), 'Instructions', 'the keyboard scrolls it');
  await page.keyboard.press('Escape');
  await page.settled();
  check.equal(await page.tid('assembly').count(), 0, 'Escape closes it');
  check.equal(await focused(), 'assembly-button', 'and leads back');
  check.equal((await choices(page)).get('asm'), null, 'also in the address');
  await page.locator('[data-k=alloc]').click();
  await page.locator('[data-k=objects]').click();
  await filter(page, 'ignore', 'nosuchname');
  await page.tid('view').focus();
  await page.keyboard.press('a');
  await page.settled();
  check.same(await rowsOf(page), command('-t', 'alloc_objects', '--ignore', 'nosuchname'),
    'with the type and the filters of the page');
  await page.keyboard.press('Escape');
  const hash = new URLSearchParams({ view: 'flame', fold: 0, sel: name, asm: 1 });
  await follow(page, hash.toString());
  check.same(await rowsOf(page), command(), 'a link opens it');
}

// Returns the same rows from an answer.
function flatRows(rows) {
  return rows.flatMap(row => row.lines).flatMap(line => [
    [line.line, line.flat, line.cum],
    ...line.instructions.map(({ flat, cum, address, text: code }) =>
      [null, flat, cum, '0x' + address.toString(16), code]),
  ]).slice(0, 1000);
}

// An answer with markup in each text, and with more rows than are shown at once.
async function hostile(check, page) {
  const bad = '<img src=x onerror="document.title=\'bad\'">\u001b[31m\u202e';
  const frame = { function: bad, file: bad, line: 1 };
  const one = { address: 2 ** 60, length: 1, flat: 1, cum: 1, text: bad, binary: bad };
  const instructions = Array.from({ length: 5000 }, () => ({ ...one, frames: [frame, frame] }));
  const lines = [
    { line: 0, flat: 0, cum: 0, source: null, instructions: [] },
    { line: 7, flat: 5, cum: 5, source: bad, instructions },
  ];
  const code = [{ binary: bad, symbol: bad, start: 1, end: 9, cut: true, build_id: false }];
  const row = {
    function: 'x', file: bad, flat: 5, cum: 5, code, lines, no_source: bad, missing: [bad],
  };
  await page.route('**/list?*', route => route.fulfill({ json: { total: 0, rows: [row] } }));
  await page.locator('tr[data-f]').first().click();
  await page.tid('assembly-button').click();
  await page.settled();
  check.equal(await page.locator('#asm img').count(), 0, 'markup stays text');
  const said = await page.locator('#asm').textContent();
  check(said.includes('<img src=x') && said.includes('\\x1b[31m\\u{202e}'), 'that is visible');
  check(/No source: <img/.test(said) && /Some instructions are missing: <img/.test(said), 'notes');
  check(/no build id says whether this file ran/.test(said), 'a file that may not be the right one');
  check(/0x1000000000000…/.test(said), 'a rounded address is not shown as an exact one');
  check.equal((await rowsOf(page)).length, 1000, 'a part is shown');
  await page.tid('assembly-more').click();
  await page.settled();
  check.equal((await rowsOf(page)).length, 3000, 'and more of it');
  check(await page.locator('#asm').evaluate(one => one.scrollWidth <= one.clientWidth),
    'long texts scroll inside');
}

async function accessible(check, page) {
  await page.addScriptTag({ path: axePath });
  await page.tid('assembly-table').waitFor();
  const { violations } = await page.evaluate(() =>
    window.axe.run(document, { resultTypes: ['violations'] }));
  const bad = violations.filter(({ impact }) => ['serious', 'critical'].includes(impact));
  check.equal(bad.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 150)}`).join('; '), '',
    'nothing serious');
  page.forgiven = /favicon\.ico/;
}
