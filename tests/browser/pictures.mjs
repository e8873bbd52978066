// Makes the pictures that docs show: each view, as it comes up on the pages of the tests. Where
// pngquant is installed, it makes them a third as large.
import { execFileSync } from 'node:child_process';
import { mkdirSync, statSync } from 'node:fs';
import { openPage, startBrowser } from './lib/browser.mjs';
import { openOther, others } from './lib/other.mjs';
import { listPages } from './lib/pages.mjs';
import { startWeb } from './lib/served.mjs';

const WIDE = { width: 1200, height: 750 };
const PIVOT = encodeURIComponent('go/parser.(*parser).parseElement');
// The name, the page, what is chosen there, and how the window is; `act` does the rest.
const PICTURES = [
  ['flame', 'go', '', {}],
  ['search', 'go', 'search=parseIdent%24%7CScanner', { dark: true }],
  ['pivot', 'go', `piv=${PIVOT}&sel=${PIVOT}`, {}],
  ['table', 'go', 'view=table', { act: row(3) }],
  ['treemap-dark', 'go', 'view=map', { dark: true }],
  ['summary', 'cpp', 'view=sizes&fold=0', { height: 940 }],
  ['history', 'waves', 'view=timeline', { act: pointAt(0.45) }],
  ['timeline', 'series', 'view=timeline', { act: brush }],
  ['growth', 'series', 'view=growth', {}],
  ['diff', 'diff', 'view=table&fold=0', {}],
  ['diff-flame', 'diff', 'view=flame&fold=0', {}],
  ['narrow', 'diff', 'view=table&fold=0', { width: 390, height: 780 }],
  ['sql', 'diff', 'view=table&fold=0&sqlopen=1', { dark: true }],
];

function row(number) {
  return page => page.locator('tr[data-f]').nth(number).click();
}

function pointAt(share) {
  return async page => {
    const box = await page.tid('timeline-canvas').boundingBox();
    await page.mouse.move(box.x + box.width * share, box.y + box.height * 0.6);
  };
}

async function brush(page) {
  const box = await page.tid('timeline-canvas').boundingBox();
  const xOf = i => box.x + 72 + (box.width - 94) * i / 19;
  await page.mouse.move(xOf(6), box.y + 120);
  await page.mouse.down();
  await page.mouse.move(xOf(14), box.y + 120);
}

function small(path) {
  try {
    execFileSync('pngquant', ['--force', '--strip', '--ext', '.png', '128', path]);
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
}

const folder = process.argv[2];
mkdirSync(folder, { recursive: true });
const pages = listPages();
const browser = await startBrowser();
for (const [name, of, hash, options] of PICTURES) {
  await picture('report-' + name, pages[of].address, hash, options);
}
await webPicture();
await browser.close();

async function picture(name, address, hash, { act, ...options }) {
  const page = await openPage(browser, address, { ...WIDE, ...options, hash });
  if (act) await act(page);
  await page.settled();
  const path = `${folder}/${name}.png`;
  await page.screenshot({ path });
  small(path);
  console.log(`${path}: ${Math.round(statSync(path).size / 1000)} kB`);
  await page.end();
}

// What only `heapprof web` has: a choice of profiles, and what an "(other)" stands for.
async function webPicture() {
  const profile = 'valid/go.indexer.indexed.pb.gz';
  const server = await startWeb('--max-nodes', '500', 'valid/go.indexer.parsed.pb.gz', profile);
  const act = async page => {
    const [largest] = await others(page);
    await openOther(page, 'view=flame', largest, true);
    await page.tid('flame-mirror').blur();
  };
  const address = `${server.address}&profile=${encodeURIComponent(profile)}`;
  await picture('web', address, 'view=flame', { act });
  await server.stop();
}
