// Runs the checks of checks/, all or those that are named, and ends with 1 if one failed. The
// checks of SERVED are run with report files, and as `served-NAME` with pages of `heapprof web`.
import { readdirSync } from 'node:fs';
import { openPage, startBrowser, wrongIn } from './lib/browser.mjs';
import { makeChecks } from './lib/checks.mjs';
import { listPages } from './lib/pages.mjs';
import { SERVED, servePages } from './lib/served.mjs';

const PREFIX = 'served-';
const files = readdirSync(new URL('./checks/', import.meta.url))
  .map(file => file.replace('.mjs', '')).sort();
const known = [...files, ...SERVED.map(name => PREFIX + name)];
const asked = process.argv.slice(2).flatMap(name =>
  name === 'served' ? known.filter(one => one.startsWith(PREFIX)) : name);
const unknown = asked.filter(name => !known.includes(name));
if (unknown.length) {
  console.log(`no checks of this name: ${unknown.join(' ')}; there are ${known.join(' ')} served`);
  process.exit(2);
}
const check = makeChecks();
const browser = await startBrowser();
const names = asked.length ? asked : known;
const pages = listPages();
await runAll(names.filter(name => !name.startsWith(PREFIX)), pages, false);
const served = names.filter(name => name.startsWith(PREFIX));
if (served.length) {
  const own = await servePages(pages);
  await runAll(served, own, true);
  check.at('servers');
  const codes = await Promise.all(Object.values(own).map(({ server }) => server.stop()));
  check(codes.every(code => code === 0), `end when they are told to: ${codes.join(' ')}`);
}
await browser.close();
process.exitCode = check.end();

async function runAll(names, pages, isServed) {
  for (const name of names) {
    const { default: run } = await import(`./checks/${name.replace(PREFIX, '')}.mjs`);
    await run({ check, visit: visitOf(pages, isServed), pages, browser, isServed });
  }
}

// Returns what opens a page, acts on it, and checks that nothing went wrong in it. An exception is
// one failure.
function visitOf(pages, isServed) {
  return async (title, name, hash, act, options = {}) => {
    const address = pages[name]?.address ?? name;
    const said = address === name && /^http/.test(name) ? 'a server' : name;
    check.at(`${said}${isServed ? ', served' : ''}: ${title}`);
    let page;
    try {
      page = await openPage(browser, address, { hash, ...options });
      await act(page, pages[name]);
      check.equal(await wrongIn(page), '', 'no error and no request elsewhere');
    } catch (error) {
      check(false, (error.stack || String(error)).slice(0, 900));
    }
    await page?.end();
  };
}
