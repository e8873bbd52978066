// Drives Debian's Chromium for the checks, and notes what must not happen in a page.
import { createRequire } from 'node:module';

const require = createRequire(process.env.MODULES + '/package.json');
const { chromium } = require('playwright-core');
export const axePath = require.resolve('axe-core/axe.min.js');

export async function startBrowser() {
  const args = ['--no-sandbox', '--disable-gpu', '--enable-precise-memory-info'];
  return chromium.launch({ executablePath: process.env.CHROMIUM, args });
}

// Opens a page and waits until it is ready. `page.wrong` collects what must not happen: errors,
// words on the console (Chromium says there what the policy refused), and requests.
export async function openPage(browser, address, options = {}) {
  const { hash = '', width = 1440, height = 900, dark = false, media, init } = options;
  const context = await browser.newContext({
    viewport: { width, height }, colorScheme: dark ? 'dark' : 'light', ...options.context,
  });
  const page = await context.newPage();
  note(page, address);
  if (media) await page.emulateMedia({ media });
  await page.addInitScript(() => {
    window.refused = [];
    addEventListener('securitypolicyviolation', event => {
      window.refused.push(`${event.effectiveDirective} ${event.blockedURI}`);
    });
  });
  if (init) await page.addInitScript(init);
  // The page of a server draws itself again when it knows which profiles there are.
  const known = address.startsWith('file:') ? null
    : page.waitForResponse(/\/profiles\?/, { timeout: 6e4 }).catch(() => {});
  await page.goto(address + (hash ? '#' + hash : ''));
  await page.waitForFunction(() => document.documentElement.dataset.ready, null, { timeout: 6e4 });
  page.tid = name => page.locator(`[data-testid="${name}"]`);
  page.settled = () => settled(page);
  if (await page.getAttribute('html', 'data-ready') !== 'failed') await known;
  if (known) await page.settled();
  page.end = () => context.close();
  return page;
}

// Waits until nothing is asked of a server any more, and what the page has is drawn.
async function settled(page) {
  await page.waitForFunction(() => !document.querySelector('[aria-busy=true]'), null,
    { timeout: 6e4 });
  await page.evaluate(() => new Promise(done =>
    requestAnimationFrame(() => setTimeout(() => setTimeout(done, 0), 0))));
}

// A page of `heapprof web` may ask its own server; a file may ask nobody.
function note(page, address) {
  page.wrong = [];
  const home = address.startsWith('file:') ? null : new URL(address).origin + '/';
  page.on('pageerror', error => page.wrong.push(error.stack || String(error)));
  page.on('console', message => {
    page.wrong.push(`${message.type()}: ${message.text()} ${message.location().url}`);
  });
  page.on('request', request => {
    const url = request.url();
    const isOwn = home ? url.startsWith(home) : url.split('#')[0] === address;
    if (!isOwn) page.wrong.push('request: ' + url);
  });
}

// Returns all that went wrong in a page so far, also what its policy refused. `page.forgiven` is a
// pattern of what a check brings about itself.
export async function wrongIn(page) {
  const refused = await page.evaluate(() => window.refused || []);
  const all = [...page.wrong, ...refused.map(words => 'refused: ' + words)];
  return all.filter(words => !page.forgiven?.test(words)).join('\n');
}
