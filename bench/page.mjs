#!/usr/bin/env node
// Measures the page in Chromium beside other flame graphs with the same tree, in turns: the size of
// the file, the first paint, a search, a redraw (the zoom into a box), and JavaScript's heap.
//
// usage: WORK=FOLDER node bench/page.mjs HEAPPROF [RUNS] [NAME=PROFILE.pb.gz...]
//   needs the modules of tests/browser/run.sh (MODULES, an absolute path); CHROMIUM names the browser
//   PROTOTYPE is the folder of the page's prototype; without it, it is left out
//
// A time of a search or a redraw is what the browser's main thread worked for it, until it is idle.
// Each run starts the browser anew. The result is a table of medians; gates decide the exit code.
import { execFileSync } from 'node:child_process';
import { mkdirSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { startBrowser } from '../tests/browser/lib/browser.mjs';
import { d3Page, install, prototypePage, speedscopePage } from './page_peers.mjs';

const [program, count, ...named] = process.argv.slice(2);
const heapprof = resolve(program);
const runs = Number(count) || 5;
const work = resolve(process.env.WORK || 'target/bench-page');
const GATES = { n55k: { file: 350e3, heap: 150 }, n250k: { file: 1.2e6, heap: 150 } };
const KEYS = ['painted', 'search', 'zoom', 'flip', 'units', 'invert', 'heap'];
const profiles = Object.fromEntries(named.map(one => one.split('=')));
mkdirSync(work, { recursive: true });

// How to open a page, and to act on it: [selector or position to click, how].
const ours = {
  ready: () => document.documentElement.dataset.ready,
  painted: () => JSON.parse(document.documentElement.dataset.perf).painted,
  search: async (page, text) => page.locator('[data-testid=search]').fill(text),
  zoom: page => clickAt(page, '[data-testid=flame-canvas]', 0.2, 2.5 * 19),
  keys: { flip: 'f', units: 'b', invert: 'i' },
};
const KINDS = {
  page: ours,
  prototype: ours,
  speedscope: {
    ready: () => window.painted,
    painted: () => window.painted,
    init: () => {
      const look = () => {
        if (!document.title.includes('profile')) requestAnimationFrame(look);
        else requestAnimationFrame(() => setTimeout(() => { window.painted = performance.now(); }));
      };
      look();
    },
    search: async (page, text) => {
      await page.keyboard.press('Control+f');
      await page.keyboard.insertText(text);
    },
    zoom: page => clickAt(page, 'canvas', 0.2, 260, 2),
    keys: {},
  },
  d3: {
    ready: () => window.painted,
    painted: () => window.painted,
    search: (page, text) => page.evaluate(words => window.chart.search(words), text),
    zoom: page => page.evaluate(() => {
      const boxes = [...document.querySelectorAll('#chart g.frame')];
      boxes.find(box => box.__data__.depth === 2)
        .dispatchEvent(new MouseEvent('click', { bubbles: true }));
    }),
    keys: {},
  },
};

async function clickAt(page, place, share, y, clickCount = 1) {
  const box = await page.locator(place).first().boundingBox();
  await page.mouse.click(box.x + box.width * share, box.y + y, { clickCount });
}

// Runs an act, and returns how many milliseconds the main thread worked until it was idle.
async function worked(client, page, act) {
  const taken = async () => (await client.send('Performance.getMetrics')).metrics
    .find(({ name }) => name === 'TaskDuration').value * 1000;
  await page.waitForTimeout(150);
  const before = await taken();
  await act();
  await page.waitForTimeout(450);
  return await taken() - before;
}

async function measure(kind, address) {
  const browser = await startBrowser();
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  const page = await context.newPage();
  const how = KINDS[kind];
  if (how.init) await page.addInitScript(how.init);
  await page.goto(address);
  await page.waitForFunction(how.ready, null, { timeout: 12e4 });
  await page.waitForTimeout(300);
  const found = { painted: await page.evaluate(how.painted) };
  const client = await context.newCDPSession(page);
  await client.send('HeapProfiler.collectGarbage');
  const usage = await client.send('Runtime.getHeapUsage');
  found.heap = (usage.usedSize + (usage.backingStorageSize || 0)) / 1e6;
  await client.send('Performance.enable');
  const idle = await worked(client, page, async () => {});
  const time = async act => Math.max(0, await worked(client, page, act) - idle);
  const searches = [];
  for (const text of ['parse', 'Ident', 'scan']) {
    searches.push(await time(() => how.search(page, text)));
  }
  found.search = median(searches);
  await how.search(page, '');
  await page.keyboard.press('Escape');
  found.zoom = await time(() => how.zoom(page));
  await page.keyboard.press('Escape');
  for (const [name, key] of Object.entries(how.keys)) {
    const times = [];
    for (let i = 0; i < 4; i++) times.push(await time(() => page.keyboard.press(key)));
    found[name] = median(times);
  }
  await browser.close();
  return found;
}

function median(list) {
  const sorted = list.filter(value => value != null).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : null;
}

// Makes the pages of one profile: {kind: [address, size of the file]}.
function pagesOf(name, profile, peers) {
  const at = `${work}/${name}`;
  const run = (...words) => execFileSync(heapprof, words, { maxBuffer: 1 << 30 }).toString();
  run('report', '--max-nodes', '1000000', '-o', `${at}.html`, profile);
  const pages = { page: `${at}.html` };
  if (process.env.PROTOTYPE) {
    prototypePage(process.env.PROTOTYPE, pages.page, `${at}.prototype.html`);
    pages.prototype = `${at}.prototype.html`;
  }
  if (peers) {
    const { rows } = JSON.parse(run('tree', '--format', 'json', '--min-percent', '0', profile));
    d3Page(peers, rows, `${at}.d3.html`);
    pages.d3 = `${at}.d3.html`;
  }
  const all = Object.entries(pages).map(([kind, file]) =>
    [kind, [pathToFileURL(file).href, statSync(file).size]]);
  if (peers) {
    const address = speedscopePage(peers, profile, `${at}.speedscope.js`);
    all.push(['speedscope', [address, null]]);
  }
  return Object.fromEntries(all);
}

const why = install(work + '/peers');
if (why) console.log(`speedscope and d3-flame-graph are left out: ${why}`);
if (!process.env.PROTOTYPE) console.log('the prototype is left out: PROTOTYPE does not name it');
let isMissed = false;
console.log('| tree | page | file | ' + KEYS.join(' | ') + ' |');
console.log('| :--- | :--- | ---: |' + ' ---: |'.repeat(KEYS.length));
for (const [name, profile] of Object.entries(profiles)) {
  const pages = pagesOf(name, profile, why ? null : work + '/peers');
  const found = Object.fromEntries(Object.keys(pages).map(kind => [kind, []]));
  for (let run = 0; run < runs; run++) {
    for (const [kind, [address]] of Object.entries(pages)) {
      found[kind].push(await measure(kind, address));
    }
  }
  for (const [kind, [, size]] of Object.entries(pages)) {
    const middle = KEYS.map(key => median(found[kind].map(one => one[key])));
    const cells = middle.map(value => value == null ? '–' : value.toFixed(value < 10 ? 1 : 0));
    const kb = size ? `${Math.round(size / 1000)} kB` : '–';
    console.log(`| ${name} | ${kind} | ${kb} | ${cells.join(' | ')} |`);
    const gate = kind === 'page' && GATES[name];
    if (gate && (size > gate.file || middle[KEYS.indexOf('heap')] > gate.heap)) isMissed = true;
  }
}
process.exitCode = isMissed ? 1 : 0;
