// What only the page of `heapprof web` does: it asks its server, chooses profiles, and opens what
// "(other)" stands for.
import { copyFileSync } from 'node:fs';
import { answer, heapprof } from '../lib/heapprof.mjs';
import { filter, tableRows, text } from '../lib/read.mjs';
import { startWeb } from '../lib/served.mjs';

const BEFORE = 'valid/go.leaky.before.pb.gz';
const AFTER = 'after <b>.pb.gz';
const HASH = 'view=table&fold=0';

export default async function ({ check, visit, pages }) {
  copyFileSync(`${process.env.PROFILES}/${pages.plain.last}`, `${process.env.PROFILES}/${AFTER}`);
  const one = await startWeb(AFTER);
  await visit('questions', one.address, HASH, page => questions(check, page));
  await program(check, one);
  await visit('another token', one.address, HASH, page => anotherToken(check, page, one));
  const two = await startWeb(BEFORE, AFTER);
  await visit('profiles', two.address, HASH, page => profiles(check, page, two));
  check.equal(await two.stop(), 0, 'the server ends when it is told to');
}

// Rows as the page and the command line have them, in one order.
async function shown(page) {
  return (await tableRows(page)).filter(({ flat, cum }) => flat || cum)
    .map(row => [row.name, row.flat, row.cum].join()).sort();
}
const wanted = (...flags) => answer('top', '-n', '0', ...flags).rows
  .filter(({ flat, cum }) => flat || cum)
  .map(row => [row.function, row.flat, row.cum].join()).sort();

async function questions(check, page) {
  const asked = [];
  page.on('request', request => asked.push(new URL(request.url()).searchParams));
  check.same(await shown(page), wanted(AFTER), 'the table is that of top');
  await filter(page, 'focus', 'serve|insert');
  check.same([...asked.at(-1)].map(([name]) => name), ['token', 'focus'],
    'a filter asks the server, and says no more');
  check.equal(asked.at(-1).get('focus'), 'serve|insert', 'with the pattern as it is');
  check.same(await shown(page), wanted('--focus', 'serve|insert', AFTER), 'as top with --focus');
  const before = await shown(page);
  await filter(page, 'ignore', 'a(?=b)');
  check.equal(await text(page, 'banner'), saidOf('--ignore', 'a(?=b)'), 'a refusal is shown');
  check.same(await shown(page), before, 'and the last data stay');
  await filter(page, 'ignore', '');
  check(!await page.tid('banner').isVisible(), 'until the fields say what is shown');
  await filter(page, 'ignore', 'nosuchname');
  const note = await text(page, 'banner');
  check(/nosuchname.*matches no/.test(note), `notes are shown: ${note}`);
  await page.evaluate(() => { location.hash = 'view=table&fold=0&ignore=insert'; });
  await page.waitForFunction(() => document.querySelector('[aria-busy=true]'));
  await page.settled();
  check.same(await shown(page), wanted('--ignore', 'insert', AFTER), 'a link asks, too');
  page.forgiven = /status of 400/;
}

// Returns what the command line says of a wrong question.
function saidOf(...flags) {
  try {
    heapprof('top', ...flags, AFTER);
  } catch (error) {
    return error.stderr.toString().trim().replace(/^heapprof: /, '');
  }
  return '';
}

// A program: without news there is no body, and without the token there is nothing.
async function program(check, { ask, origin }) {
  check.at('web: programs');
  const first = await ask('report');
  const tag = first.headers.get('ETag');
  const again = await ask('report', {}, { headers: { 'If-None-Match': tag } });
  check.equal(`${again.status} ${await again.text()}`, '304 ', 'no news, no body');
  const other = await ask('report', { focus: 'x' }, { headers: { 'If-None-Match': tag } });
  check.equal(other.status, 200, 'another question is news');
  for (const path of ['/', '/?token=x', '/api/v1/report?token=x', '/api/v1/report']) {
    const refused = await fetch(origin + path);
    check.equal(refused.status, 403, `${path} is refused without the token`);
    check(!(await refused.text()).includes('main.'), 'and says nothing of the profile');
  }
}

// A page outlives its server, and then another one has its port.
async function anotherToken(check, page, server) {
  const rows = await shown(page);
  await server.stop();
  await filter(page, 'focus', 'insert');
  const gone = await text(page, 'banner');
  check(gone.includes('no longer answers'), `a server that is gone is told: ${gone}`);
  const next = await startWeb('--port', new URL(server.origin).port, AFTER);
  await filter(page, 'focus', 'serve');
  const said = await text(page, 'banner');
  check(/token/.test(said), `so is one with another token: ${said}`);
  check.same(await shown(page), rows, 'and the last data stay');
  await next.stop();
  page.forgiven = /status of 403|ERR_CONNECTION/;
}

async function profiles(check, page) {
  const select = label => page.locator(`select[aria-label="${label}"]`);
  const choose = async (label, value, part) => {
    await Promise.all([page.waitForResponse(/\/profiles\?/), select(label).selectOption(value)]);
    await page.waitForFunction(() => document.documentElement.dataset.ready);
    await select(label).waitFor();
    await page.settled();
    check(page.url().includes(part), `${label}: ${value || 'none'} is in the address`);
    await page.tid('tab-table').click();
    const isOwn = await page.tid('fold').getAttribute('aria-pressed') === 'true';
    if (isOwn) await page.tid('fold').click();
    await page.settled();
  };
  const texts = await select('Profile').locator('option').allTextContents();
  check.same(texts, ['all profiles', BEFORE, AFTER], 'all profiles come first');
  check.equal(await page.tid('compare').count() + await page.tid('snap-b').count(), 1,
    'both are moments');
  await choose('Profile', BEFORE, 'profile=');
  check.same(await shown(page), wanted(BEFORE), 'one alone has its own rows');
  await choose('Profile', AFTER, 'profile=');
  await choose('Compare with', BEFORE, 'base=');
  const rows = (await tableRows(page)).filter(row => row.delta)
    .map(row => [row.name, row.before, row.after].join()).sort();
  const changed = answer('diff', '-n', '0', BEFORE, AFTER).rows
    .filter(row => row.before !== row.after)
    .map(row => [row.function, row.before, row.after].join()).sort();
  check.same(rows, changed, 'two are compared as by diff');
  await choose('Profile', '', 'token=');
  check(!/profile=|base=/.test(page.url()), 'and there is a way back to all');
  check.equal(await select('Profile').inputValue(), '', 'which says so');
  await choose('Compare with', BEFORE, 'base=');
  check.equal(await select('Profile').inputValue(), AFTER, 'a base alone is for the last one');
  await choose('Compare with', '', 'token=');
  check(!/base=/.test(page.url()), 'and goes away again');
}
