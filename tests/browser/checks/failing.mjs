// The page of a server that is slow, busy or gone, or that has news. A small server stands in for
// `heapprof web`, which cannot be told to be any of this.
import { choices, filter, pageTime, tableRows, text } from '../lib/read.mjs';
import { startServer } from '../lib/server.mjs';

export default async function ({ check, visit, pages }) {
  const now = { page: 'plain', filtered: 'few', version: 1 };
  const server = await startServer(pages, now);
  const at = { check, server, now };
  const hash = 'view=table&fold=0';
  await visit('slow', server.address, hash, page => slow(at, page));
  await visit('busy', server.address, hash, page => busy(at, page));
  await visit('too busy', server.address, hash, page => tooBusy(at, page));
  await visit('news', server.address + '&refresh=200', hash, page => news(at, page));
}

const isBusy = page => page.getAttribute('#view', 'aria-busy');
const names = async page => (await tableRows(page)).map(row => row.name);

// Types a filter, and waits until the server was asked.
async function type({ server }, page, pattern) {
  const count = server.reports().length;
  await page.tid('focus').fill(pattern);
  while (server.reports().length === count) await pageTime(page, 20);
}

async function slow(at, page) {
  const { check, server, now } = at;
  const whole = await names(page);
  now.slow = 1500;
  await type(at, page, 'first');
  check.equal(await isBusy(page), 'true', 'the page says that it waits');
  await type(at, page, 'second');
  const [first, second] = server.reports().slice(-2);
  check(first.isCut, 'a question that is overtaken is ended');
  await page.tid('focus').fill('');
  await pageTime(page, 200);
  await page.settled();
  check(second.isCut, 'so is one that is taken back');
  await pageTime(page, 1600);
  check.same(await names(page), whole, 'and its answer does not come');
  check.equal(server.reports().at(-1), second, 'what is shown is not asked again');
  await type(at, page, 'third');
  await page.keyboard.press('Escape');
  await filter(page, 'focus', 'third');
  check(!server.reports().at(-1).isCut, 'a question that comes back is answered');
  const filtered = await names(page);
  check(filtered.includes('(other)') && !whole.includes('(other)'), 'with its own data');
  await filter(page, 'focus', '');
  check.same(await names(page), whole, 'and without a filter the whole is there again');
  now.slow = 0;
}

async function busy({ check, server, now }, page) {
  const count = server.reports().length;
  Object.assign(now, { busy: 2, retryAfter: '2' });
  const begin = Date.now();
  await filter(page, 'focus', 'x');
  const took = Date.now() - begin;
  check.equal(server.reports().length - count, 3, 'it asks again');
  check(took > 4000 && took < 6000, `after the time that the server says (${took} ms)`);
  check(!await page.tid('banner').isVisible(), 'and says nothing');
  check((await names(page)).includes('(other)'), 'until the answer is there');
  page.forgiven = /status of 503/;
}

async function tooBusy({ check, server, now }, page) {
  const count = server.reports().length;
  Object.assign(now, { busy: 99, retryAfter: null });
  await filter(page, 'focus', 'y');
  check.equal(server.reports().length - count, 4, 'it asks three times again');
  check.equal(await text(page, 'banner'), 'The server is busy', 'and then says so');
  now.busy = 0;
  await filter(page, 'focus', '');
  check(!await page.tid('banner').isVisible(), 'until the fields say what is shown');
  page.forgiven = /status of 503/;
}

async function news({ check, server, now }, page) {
  const count = server.reports().length;
  await pageTime(page, 700);
  check(server.reports().length > count, 'it asks again');
  await page.locator('tr[data-f]').nth(1).click();
  const kept = await choices(page);
  Object.assign(now, { page: 'go', version: 2 });
  await page.waitForFunction(() => document.querySelectorAll('tr[data-f]').length > 100);
  check.equal((await choices(page)).get('view'), kept.get('view'), 'the view stays');
  server.stop();
  await page.waitForFunction(() => !document.querySelector('[data-testid=banner]').hidden);
  const gone = await text(page, 'banner');
  check(gone.includes('no longer answers'), `a server that is gone is told: ${gone}`);
  check((await tableRows(page)).length > 0, 'and the last data stay');
  page.forgiven = /ERR_CONNECTION|Failed to load/;
}
