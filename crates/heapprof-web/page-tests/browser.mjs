// Drives Debian's Chromium for the tests, and counts what goes wrong in a page.
import { createRequire } from 'node:module';
import { existsSync } from 'node:fs';

const require = createRequire(process.env.MODULES + '/package.json');
const { chromium } = require('playwright-core');
export const axePath = require.resolve('axe-core/axe.min.js');

const CHROMIUM = process.env.CHROMIUM || '/usr/bin/chromium';

// Starts the browser. Where there is none, the test says "skipped" and ends with 77, so that a
// build server can take that for a failure.
export async function startBrowser() {
  if (!existsSync(CHROMIUM)) {
    console.log(`skipped: there is no ${CHROMIUM}`);
    process.exit(77);
  }
  const args = ['--no-sandbox', '--disable-gpu', '--enable-precise-memory-info'];
  return chromium.launch({ executablePath: CHROMIUM, args });
}

// Opens a page and waits until it is ready. `errors` and `requests` collect what must not happen.
export async function openPage(browser, address, options = {}) {
  const { hash = '', width = 1440, height = 900, dark = false, media, init } = options;
  const context = await browser.newContext({
    viewport: { width, height }, colorScheme: dark ? 'dark' : 'light', bypassCSP: false,
    ...options.context,
  });
  const page = await context.newPage();
  page.errors = [];
  page.requests = [];
  page.on('pageerror', error => page.errors.push(error.stack || String(error)));
  page.on('console', message => {
    if (['error', 'warning'].includes(message.type())) page.errors.push(message.text());
  });
  page.on('request', request => {
    if (!request.url().startsWith('file:')) page.requests.push(request.url());
  });
  if (media) await page.emulateMedia({ media });
  if (init) await page.addInitScript(init);
  const url = /^\w+:/.test(address) ? address : 'file://' + address;
  await page.goto(url + (hash ? '#' + hash : ''));
  await page.waitForFunction(() => document.documentElement.dataset.ready, null, { timeout: 30000 });
  page.tid = name => page.locator(`[data-testid="${name}"]`);
  page.settled = () => page.evaluate(() => new Promise(done =>
    requestAnimationFrame(() => setTimeout(() => setTimeout(done, 0), 0))));
  page.end = () => context.close();
  return page;
}

// Returns the rows of the table as the page's attributes say.
export function tableRows(page) {
  return page.$$eval('[data-testid=top-table] tr[data-f]', rows => rows.map(row => {
    const number = key => row.dataset[key] == null ? null : Number(row.dataset[key]);
    return {
      f: number('f'), name: row.dataset.name, flat: number('flat'), cum: number('cum'),
      before: number('before'), after: number('after'), delta: number('delta'),
    };
  }));
}

// A small list of checks: it prints each failure and the count at the end.
export function makeChecks() {
  const state = { passed: 0, failed: 0, where: '' };
  const check = (isRight, words) => {
    if (isRight) state.passed++;
    else {
      state.failed++;
      console.log(`FAIL ${state.where}: ${words}`);
    }
    return isRight;
  };
  check.equal = (got, wanted, words) => check(Object.is(got, wanted) || got === wanted,
    `${words}: got ${JSON.stringify(got)}, wanted ${JSON.stringify(wanted)}`);
  check.at = where => { state.where = where; };
  check.end = () => {
    console.log(`${state.passed} checks passed, ${state.failed} failed`);
    process.exitCode = state.failed ? 1 : 0;
  };
  return check;
}

// Runs a block of checks; an exception counts as one failure and does not stop the others.
export async function block(check, name, act) {
  check.at(name);
  try {
    await act();
  } catch (error) {
    check(false, (error.stack || String(error)).slice(0, 700));
  }
}
