// Checks report pages: node report.mjs PAGE.html … (oracle/look-at-pages.sh makes them).
// Set ORACLE to a folder with NAME.json (from `heapprof top --format json`) to compare with that too.
import { existsSync, readFileSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import { axePath, block, makeChecks, openPage, startBrowser, tableRows } from './browser.mjs';
import { containerOf, totals, typeIndex } from './container.mjs';

const pages = process.argv.slice(2).map(name => resolve(name));
const VIEWS = ['flame', 'table', 'map', 'sizes', 'timeline', 'growth'];
const check = makeChecks();
const browser = await startBrowser();

for (const file of pages) {
  const container = containerOf(file);
  const { head } = container;
  const name = basename(file, '.html');
  const run = (title, act) => block(check, `${name}: ${title}`, act);
  await run('views', () => everyView(file));
  await run('numbers', () => numbers(file, container, name));
  await run('axe', () => accessible(file, head));
  await run('shell', () => shell(file));
}
await browser.close();
check.end();

// Every view draws, in light and dark, without an error and without a request.
async function everyView(file) {
  const page = await openPage(browser, file);
  for (const view of VIEWS) {
    await page.tid('tab-' + view).click();
    await page.settled();
    check.equal(await page.tid('tab-' + view).getAttribute('aria-selected'), 'true', view);
    const isEmpty = await page.tid('empty').count() > 0;
    const content = { flame: 'flame-canvas', table: 'top-table', map: 'treemap-canvas',
      sizes: 'summary', timeline: 'timeline-canvas', growth: 'growth-table' }[view];
    check(isEmpty || await page.tid(content).count() === 1, `${view} draws or says why not`);
    if (!isEmpty && content.endsWith('canvas')) check(await isPainted(page, content), view + ' paints');
  }
  await page.keyboard.press('t');
  check.equal(await page.getAttribute('html', 'data-theme'), 'dark', 'T turns it dark');
  await page.keyboard.press('1');
  check.equal(page.errors.join('\n'), '', 'errors');
  check.equal(page.requests.join('\n'), '', 'requests');
  const perf = JSON.parse(await page.getAttribute('html', 'data-perf'));
  for (const key of ['decode', 'build', 'ready', 'page', 'painted']) {
    check(perf[key] > 0, 'data-perf has ' + key);
  }
  await page.end();
}

async function isPainted(page, tid) {
  return page.tid(tid).evaluate(canvas => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.some(byte => byte !== 0);
  });
}

// The rows of the table are the right numbers: for each type, and add up to the total.
async function numbers(file, container, name) {
  const { head } = container;
  for (const [type] of head.types.slice(0, 8)) {
    const [, family, kind] = type.match(/^(.+)_(objects|space)$/) || [null, type, 'own'];
    const last = head.snapshots.length - 1;
    for (const own of [0, 1]) {
      const hash = `view=table&a=-1&b=${last}&fam=${family}&unit=${kind}&fold=${own}`;
      const page = await openPage(browser, file, { hash });
      while (await page.tid('more').count()) await page.tid('more').click();
      const rows = await tableRows(page);
      const wanted = totals(container, last, typeIndex(container, type), { own: own === 1 });
      compareRows(rows, wanted, `${type} own=${own}`);
      await page.end();
    }
  }
  const oracle = process.env.ORACLE && `${process.env.ORACLE}/${name}.json`;
  if (oracle && existsSync(oracle)) await compareOracle(file, JSON.parse(readFileSync(oracle, 'utf8')));
}

function compareRows(rows, wanted, words) {
  let sum = 0;
  for (const row of rows) {
    sum += row.flat;
    check.equal(row.flat, wanted.flat.get(row.f) || 0, `${words} flat of ${row.name.slice(0, 40)}`);
    check.equal(row.cum, wanted.cum.get(row.f) || 0, `${words} cum of ${row.name.slice(0, 40)}`);
  }
  if (rows.length) check.equal(sum, wanted.total, words + ' rows add up');
  const missing = [...wanted.cum].filter(([f, v]) => v && !rows.some(row => row.f === f));
  check.equal(missing.length, 0, words + ' functions are missing');
  const sorted = rows.every((row, i) => i === 0 || rows[i - 1].flat >= row.flat);
  check(sorted, words + ' is sorted by flat');
}

// Rows of `heapprof top --format json` are {name or function, flat, cum}.
async function compareOracle(file, answer) {
  const page = await openPage(browser, file, { hash: 'view=table&fold=0' });
  const rows = new Map((await tableRows(page)).map(row => [row.name, row]));
  for (const row of (answer.rows || answer).slice(0, 60)) {
    const shown = rows.get(row.name ?? row.function);
    check.equal(shown?.flat, row.flat, `oracle flat of ${row.name ?? row.function}`);
    check.equal(shown?.cum, row.cum, `oracle cum of ${row.name ?? row.function}`);
  }
  await page.end();
}

// axe-core finds nothing serious, in both themes and in each view.
async function accessible(file, head) {
  for (const dark of [false, true]) {
    const page = await openPage(browser, file, { dark, context: { bypassCSP: true } });
    await page.evaluate(() => { delete window.trustedTypes; }).catch(() => {});
    await page.addScriptTag({ path: axePath });
    for (const view of VIEWS) {
      await page.tid('tab-' + view).click();
      await page.settled();
      const found = await page.evaluate(() => window.axe.run(document, {
        resultTypes: ['violations'],
      }));
      const bad = found.violations.filter(({ impact }) => ['serious', 'critical'].includes(impact));
      const words = bad.map(rule => `${rule.id}: ${rule.nodes[0].html.slice(0, 150)} ` +
        rule.nodes[0].failureSummary.slice(0, 200)).join('; ');
      check.equal(words, '', `axe ${view} ${dark ? 'dark' : 'light'}`);
    }
    await page.end();
  }
}

// The file keeps its promises: policy, no handlers, no style attributes, no outside addresses.
async function shell(file) {
  const html = readFileSync(file, 'utf8');
  const start = html.slice(0, html.indexOf('id="data"'));
  check(/default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'/.test(start), 'policy');
  check(start.includes("require-trusted-types-for 'script'"), 'trusted types');
  const markup = start.replace(/<script>[^]*?<\/script>/g, '').replace(/<style>[^]*?<\/style>/g, '');
  check(!/\son\w+=|\sstyle=|<link|<img|https?:/.test(markup), 'markup is plain');
  check(!/\.innerHTML|\.outerHTML|insertAdjacentHTML|document\.write|\beval\(/.test(start), 'text only');
  check(html.trimEnd().endsWith('</html>'), 'ends');
  const after = html.slice(html.indexOf('</script>', html.indexOf('id="data"')));
  check.equal(after.replace(/\s/g, ''), '</script></body></html>', 'data come last');
}
