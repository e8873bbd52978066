// Names with markup, quotes, bidi and control characters are text and nothing else.
import { VIEWS } from '../lib/pages.mjs';
import { answer } from '../lib/heapprof.mjs';
import { filter, tableRows } from '../lib/read.mjs';

const UNSEEN = '[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b-\\u200f' +
  '\\u202a-\\u202e\\u2066-\\u2069\\ufeff]';
const watch = () => {
  window.alerts = 0;
  window.alert = () => { window.alerts++; };
};

export default async function ({ check, visit, isServed }) {
  for (const name of ['names', 'hostile']) {
    await visit('every view', name, '', page => everyView(check, page, isServed),
      { init: watch });
    await visit('the table', name, 'view=table&fold=0', (page, of) => table(check, page, of));
  }
  await visit('names that read the same', 'twins', 'view=table&fold=0',
    page => twins(check, page));
  await visit('values of one name', 'values', 'view=table&fold=0', page => values(check, page));
  await visit('the policy', 'names', '', page => policy(check, page));
}

// The page's own scripts are one, and the place for data, which a file empties.
async function everyView(check, page, isServed) {
  const own = isServed ? 2 : 1;
  for (const view of VIEWS) {
    await page.tid('tab-' + view).click();
    await page.settled();
    const found = await page.evaluate(unseen => ({
      images: document.querySelectorAll('img, iframe, svg image').length,
      scripts: document.querySelectorAll('script').length,
      alerts: window.alerts,
      unseen: document.body.innerText.match(new RegExp(unseen))?.index ?? -1,
    }), UNSEEN);
    check.same([found.images, found.scripts - own, found.alerts], [0, 0, 0],
      `${view}: names make no element`);
    check.equal(found.unseen, -1, `${view}: no control character is shown`);
  }
}

async function table(check, page, { last }) {
  const wanted = answer('top', '-n', '0', last).rows.map(row => row.function).sort();
  const rows = await tableRows(page);
  check.same(rows.map(row => row.name).sort(), wanted, 'the names are those of the profile');
  for (let i = 0; i < rows.length; i++) {
    const row = page.locator('tr[data-f]').nth(i);
    const name = await row.getAttribute('data-name');
    const words = JSON.stringify(name).slice(0, 40);
    await row.click();
    check.equal(await page.tid('panel-name').getAttribute('data-name'), name,
      `the panel shows ${words}`);
    await page.tid('focus-on').click();
    await page.settled();
    const pattern = await page.tid('focus').inputValue();
    const isRight = await page.tid('focus').getAttribute('aria-invalid') === 'false';
    const kept = await page.$$eval('tr[data-f]', all => all.length);
    check(isRight && kept > 0 || !name, `focus on it keeps it: ${pattern.slice(0, 40)}`);
    await filter(page, 'focus', '');
  }
  await page.tid('sql-button').click();
  check((await page.tid('command-text').textContent()).startsWith('$ heapprof top'), 'the command');
}

// Short names keep what tells them apart.
async function twins(check, page) {
  const short = await page.$$eval('#side bdi', all => all.map(one => one.textContent));
  const wanted = ['Map<shop::Key, …>::put', 'Map<shop::Other, …>::put', 'shop::parse(int)',
    'shop::parse(long)', 'render::{closure#0}'];
  for (const name of wanted) {
    check(short.some(one => one.endsWith(name)), `${name} is in the panel: ${short.join(' | ')}`);
  }
}

// Values that have one name have their path beside it, because no other row says where they are.
async function values(check, page) {
  const shown = (await tableRows(page)).map(row => row.cells.at(-2));
  const twice = shown.filter((name, i) => shown.indexOf(name) < i);
  check.same(twice, [], `no two of ${shown.length} rows read the same`);
}

// A page may not be told to load or to run anything, whatever gets into it.
async function policy(check, page) {
  const tried = await page.evaluate(async () => {
    const tell = async act => {
      try {
        await act();
        return 'done';
      } catch {
        return 'refused';
      }
    };
    return [
      await tell(() => { document.body.innerHTML = '<p>x'; }),
      await tell(() => fetch('https://example.org/')),
      await tell(() => setTimeout('window.ran = 1')),
    ].join();
  });
  check.equal(tried, 'refused,refused,refused', 'markup, requests and code from text are refused');
  const refused = await page.evaluate(() => window.refused.length);
  check(refused > 0, `and are reported (${refused})`);
  page.forgiven = /Content Security Policy|requires .Trusted|^refused/;
}
