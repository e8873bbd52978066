// The page as a server sends it: what it asks, and what it does when the server fails.
//
// A small server stands in for `heapprof web`. Once that command is there, its own pages can be
// driven by every other check: give listPages (lib/pages.mjs) their addresses, with their token.
import { choices, clickRow, follow, tableRows, text } from '../lib/read.mjs';
import { startServer } from '../lib/server.mjs';

export default async function ({ check, visit, pages }) {
  const now = { page: 'plain', part: 'cpp', broken: null, version: 1 };
  const server = await startServer(pages, now);
  const start = server.address + '?token=secret&profile=a';
  await visit('questions', start, 'view=table&fold=0', page => questions(check, page, server, now));
  await visit('(other)', start, 'view=flame&fold=0', page => other(check, page, server, now));
  await visit('a wrong token', server.address + '?token=x', '', async page => {
    const said = await text(page, 'error');
    check(said.includes('The token is wrong. Use the printed address'), said);
    forgive(page, /403/);
  });
  const fresh = server.address + '?token=secret&refresh=200';
  await visit('news', fresh, 'view=table&fold=0', page => news(check, page, server, now));
}

// Chromium itself notes an answer that is an error, or that does not come.
function forgive(page, pattern) {
  page.forgiven = pattern;
}

async function questions(check, page, server, now) {
  check((await tableRows(page)).length > 0, 'the table is there');
  const [, first] = server.reports()[0];
  check.same([first.token, first.profile], ['secret', 'a'], 'token and profile are sent');
  const options = page.locator('select[aria-label=Profile] option');
  await options.nth(1).waitFor({ state: 'attached' });
  check.same(await options.allTextContents(), ['all profiles', 'first <b>', 'second'],
    'profiles can be chosen');
  const before = server.reports().length;
  await page.tid('focus').fill('load(?=x)');
  await page.waitForTimeout(600);
  const last = server.reports().at(-1)[1];
  check(server.reports().length > before, 'a filter asks the server');
  check.same(Object.entries(last).flat(), ['token', 'secret', 'profile', 'a', 'focus', 'load(?=x)'],
    'with the pattern as it is, and with nothing that the server would refuse');
  check((await tableRows(page)).length > 0, 'and the page itself does not filter');
  now.broken = { what: 'The pattern is wrong', cause: 'look-around', help: 'Leave it out' };
  await page.tid('ignore').fill('(?=x)');
  await page.waitForTimeout(600);
  check((await text(page, 'banner')).includes('The pattern is wrong. look-around. Leave it out'),
    'what the server says is shown');
  now.broken = null;
  await page.tid('ignore').fill('x');
  await page.waitForTimeout(600);
  check(!await page.tid('banner').isVisible(), 'and goes away');
  forgive(page, /400/);
  await page.selectOption('select[aria-label="Compare with"]', 'b');
  await page.waitForURL(/base=b/);
  check(/token=secret/.test(page.url()) && /profile=a/.test(page.url()), 'comparing navigates');
}

async function other(check, page, server, now) {
  now.page = 'few';
  now.version++;
  await page.reload();
  await page.waitForFunction(() => document.documentElement.dataset.ready);
  const rows = await page.$$eval('[data-testid=flame-mirror] tbody tr', all => all.map(row =>
    [row.dataset.name, Number(row.getAttribute('aria-level'))]));
  const at = rows.findIndex(([name]) => name === '(other)');
  const path = [];
  for (const [name, level] of rows.slice(0, at + 1)) {
    path.length = level - 1;
    path.push(name);
  }
  const zoom = path.slice(1).map(name => 'zoom=' + encodeURIComponent(name)).join('&');
  await follow(page, 'fold=0&' + zoom);
  await clickRow(page, path.length - 1, 0.5);
  await page.waitForFunction(() =>
    document.querySelector('[data-testid=tools]').textContent.includes('Inside'));
  const asked = server.asked.findLast(([name]) => name === '/api/v1/subtree');
  check.same(JSON.parse(asked[1].path), path.slice(1, -1), '(other) asks for its path');
  await page.getByText('back to the whole').first().click();
  await page.waitForFunction(() =>
    !document.querySelector('[data-testid=tools]').textContent.includes('Inside'));
  check(true, 'and there is a way back');
  now.page = 'plain';
  now.version++;
}

async function news(check, page, server, now) {
  const count = server.reports().length;
  await page.waitForTimeout(700);
  check(server.reports().length > count, 'it asks again');
  await page.locator('tr[data-f]').nth(1).click();
  const kept = await choices(page);
  now.page = 'go';
  now.version++;
  await page.waitForFunction(() => document.querySelectorAll('tr[data-f]').length > 100);
  check.equal((await choices(page)).get('view'), kept.get('view'), 'the view stays');
  server.stop();
  await page.waitForFunction(() => !document.querySelector('[data-testid=banner]').hidden);
  check((await text(page, 'banner')).includes('does not answer'), 'a server that is gone is told');
  check((await tableRows(page)).length > 0, 'and the last data stay');
  forgive(page, /ERR_CONNECTION|Failed to load/);
}
