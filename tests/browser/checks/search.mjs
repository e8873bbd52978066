// Searching: what matches, what share that is, and patterns that the page refuses.
import { answer } from '../lib/heapprof.mjs';
import { MAIN } from '../lib/pages.mjs';
import { choices, filter, tableRows, text } from '../lib/read.mjs';
import { isText } from '../lib/text.mjs';

const PATTERNS = {
  go: 'parseIdent$|Scanner', cpp: 'market::', rust: 'rust_', diff: 'tree', series: 'session',
};
// Forms that Rust's regular expressions do not have, or read otherwise.
const REFUSED = [
  'a(?=b)', 'a(?!b)', '(?<=a)b', '(a)\\1', '[[:alpha:]]', '(?s)a', 'a{', '(', '\\h',
];

export default async function ({ check, visit, isServed }) {
  for (const name of MAIN) {
    await visit('search', name, 'view=flame&fold=0&a=-1', (page, of) =>
      share(check, page, of, PATTERNS[name]));
  }
  await visit('search by keys', 'go', 'fold=0', page => byKeys(check, page));
  await visit('patterns', 'diff', '', page => patterns(check, page, isServed));
}

// The share that matches is what `--focus` keeps. Both look at files too, so the pattern must not
// match one.
async function share(check, page, { last }, pattern) {
  const { kept, total } = keptOf(last, pattern);
  await page.tid('search').fill(pattern);
  await page.settled();
  const said = await text(page, 'hits');
  const [percent, amount] = said.split(' · ');
  check(isText(percent, 100 * kept / total, '%'), `the share of /${pattern}/: ${said}`);
  check(isText(amount, kept, 'bytes'), `and the amount: ${kept}`);
  check.equal((await choices(page)).get('search'), pattern, 'the search is in the address');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await page.keyboard.press('2');
  await page.tid('search').fill(pattern);
  await page.settled();
  const rows = await tableRows(page);
  check(rows.length > 0 && rows.every(({ name }) => new RegExp(pattern).test(name)),
    `the table lists the ${rows.length} functions that match`);
}

function keptOf(profile, pattern) {
  const whole = answer('top', '-n', '1', profile);
  const found = answer('top', '-n', '0', '--focus', pattern, profile);
  return { total: whole.total, kept: found.rows.reduce((sum, row) => sum + row.flat, 0) };
}

async function byKeys(check, page) {
  await page.keyboard.press('/');
  await page.keyboard.type('parseident');
  await page.settled();
  check.equal(await text(page, 'hits'), 'no match', 'case counts');
  check.equal(await page.tid('hits').getAttribute('role'), 'status', 'hits are announced');
  await page.tid('search').fill('(?i)parseident');
  check((await text(page, 'hits')).includes('%'), '(?i) ignores case');
  await page.keyboard.press('Escape');
  check.equal(await text(page, 'hits'), '', 'Escape clears the search');
}

async function patterns(check, page, isServed) {
  for (const bad of REFUSED) {
    await page.tid('search').fill(bad);
    const isMarked = await page.tid('search').getAttribute('aria-invalid') === 'true';
    check(isMarked && await page.locator('#search-wrong').isVisible(), `${bad} is refused`);
  }
  await page.tid('search').fill('\\bserve\\b');
  check.equal(await page.tid('search').getAttribute('aria-invalid'), 'false', '\\b is possible');
  await filter(page, 'focus', 'a(?=b)');
  check(await page.locator('#focus-wrong').isVisible(), 'focus says why');
  check((await text(page, 'share')).includes('100 %'), 'a wrong pattern filters nothing');
  if (!isServed) return;
  check((await text(page, 'banner')).includes('look-around'), 'and the server says why, too');
  page.forgiven = /status of 400/;
}
