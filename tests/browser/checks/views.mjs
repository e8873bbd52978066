// Every view of each page draws, or says why it has nothing to draw, in light and in dark.
import { readFileSync } from 'node:fs';
import { MAIN, VIEWS } from '../lib/pages.mjs';
import { isPainted } from '../lib/read.mjs';

const CONTENT = {
  flame: 'flame-canvas', table: 'top-table', map: 'treemap-canvas', sizes: 'summary',
  timeline: 'timeline-canvas', growth: 'growth-table',
};
// What the pages cannot show, because a timeline takes several moments or a history.
const EMPTY = {
  go: ['timeline', 'growth'], cpp: ['growth'], rust: ['growth'], diff: ['growth'],
};

export default async function ({ check, visit, pages, isServed }) {
  for (const name of [...MAIN, 'waves', 'cpu', 'perl', 'negative', 'sampled', 'few']) {
    for (const dark of [false, true]) {
      await visit(`every view, ${dark ? 'dark' : 'light'}`, name, '', page =>
        everyView(check, page, name, dark), { dark });
    }
  }
  for (const name of MAIN) await shell(check, pages[name], isServed);
}

async function everyView(check, page, name, dark) {
  check.equal(await page.getAttribute('html', 'data-theme'), dark ? 'dark' : 'light', 'the theme');
  for (const view of VIEWS) {
    await page.tid('tab-' + view).click();
    await page.settled();
    const isChosen = await page.tid('tab-' + view).getAttribute('aria-selected') === 'true';
    const isEmpty = await page.tid('empty').count() > 0;
    if (EMPTY[name]) check.equal(isEmpty, EMPTY[name].includes(view), `${view} is empty or not`);
    const draws = isEmpty ? (await page.tid('empty').textContent()).length > 30
      : await page.tid(CONTENT[view]).count() === 1;
    check(isChosen && draws, `${view} draws, or says why not`);
    if (!isEmpty && CONTENT[view].endsWith('canvas')) {
      check(await isPainted(page, CONTENT[view]), `${view} is painted`);
    }
    const words = await page.evaluate(() => document.body.innerText);
    const odd = words.match(/.{0,20}(NaN|undefined|Infinity|\[object).{0,20}/);
    check.equal(odd?.[0], undefined, `${view} says nothing odd`);
  }
  const perf = JSON.parse(await page.getAttribute('html', 'data-perf'));
  check(['decode', 'build', 'ready', 'page', 'painted'].every(key => perf[key] > 0), 'times');
}

// The page itself: its policy, no handlers, no styles in markup, no addresses, the data last.
async function shell(check, { name, file, address }, isServed) {
  check.at(`${name}${isServed ? ', served' : ''}: the page itself`);
  const html = isServed ? await (await fetch(address)).text() : readFileSync(file, 'utf8');
  const data = html.indexOf('id="data"');
  const start = html.slice(0, data);
  const policy = start.match(/Content-Security-Policy" content="([^"]+)"/)?.[1] || '';
  check(/^default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+';/.test(policy) &&
    !/unsafe|\*/.test(policy) && policy.includes("require-trusted-types-for 'script'"), 'policy');
  const markup = start.replace(/<script>[^]*?<\/script>/g, '')
    .replace(/<style>[^]*?<\/style>/g, '');
  check(!/\son\w+=|\sstyle=|<link|<img|https?:/.test(markup), 'its markup is plain');
  check(!/\.innerHTML|\.outerHTML|insertAdjacentHTML|document\.write|\beval\(/.test(start),
    'its script makes text nodes only');
  const after = html.slice(html.indexOf('</script>', data)).replace(/\s/g, '');
  check.equal(after, '</script></body></html>', 'the data come last');
  const isEmpty = html.includes('data-chars="0"></script>');
  check.equal(isEmpty, isServed, isServed ? 'and are asked for' : 'and are there');
}
