// Runs the checks of checks/, all or those that are named, and ends with 1 if one failed.
import { readdirSync } from 'node:fs';
import { openPage, startBrowser, wrongIn } from './lib/browser.mjs';
import { makeChecks } from './lib/checks.mjs';
import { listPages } from './lib/pages.mjs';

const known = readdirSync(new URL('./checks/', import.meta.url))
  .map(file => file.replace('.mjs', '')).sort();
const asked = process.argv.slice(2);
const unknown = asked.filter(name => !known.includes(name));
if (unknown.length) {
  console.log(`no checks of this name: ${unknown.join(' ')}; there are ${known.join(' ')}`);
  process.exit(2);
}
const check = makeChecks();
const pages = listPages();
const browser = await startBrowser();

// Opens a page, acts on it, and checks that nothing went wrong in it. An exception is one failure.
async function visit(title, name, hash, act, options = {}) {
  check.at(`${name}: ${title}`);
  const address = pages[name]?.address ?? name;
  let page;
  try {
    page = await openPage(browser, address, { hash, ...options });
    await act(page, pages[name]);
    check.equal(await wrongIn(page), '', 'no error and no request');
  } catch (error) {
    check(false, (error.stack || String(error)).slice(0, 900));
  }
  await page?.end();
}

for (const name of asked.length ? asked : known) {
  const { default: run } = await import(`./checks/${name}.mjs`);
  await run({ check, visit, pages, browser });
}
await browser.close();
process.exitCode = check.end();
