// axe-core finds nothing serious in any view, in light and in dark, nor in the parts that open.
import { axePath } from '../lib/browser.mjs';
import { MAIN, VIEWS } from '../lib/pages.mjs';
import { filter } from '../lib/read.mjs';

export default async function ({ check, visit }) {
  for (const name of [...MAIN, 'waves', 'names']) {
    for (const dark of [false, true]) {
      // axe is a script from outside, which the page's policy would refuse.
      const options = { dark, context: { bypassCSP: true } };
      await visit(`axe, ${dark ? 'dark' : 'light'}`, name, '', page => allViews(check, page),
        options);
    }
  }
}

async function allViews(check, page) {
  await page.addScriptTag({ path: axePath });
  // A server refuses the wrong pattern below, and Chromium notes that. Without the page's policy it
  // also looks for an icon.
  page.forgiven = /status of 400|favicon\.ico/;
  for (const view of VIEWS) {
    await page.tid('tab-' + view).click();
    await page.settled();
    await nothingSerious(check, page, view);
  }
  await page.tid('tab-table').click();
  await page.locator('tr[data-f]').first().click();
  await page.tid('sql-button').click();
  await filter(page, 'focus', 'a(?=b)');
  await nothingSerious(check, page, 'a function, the SQL drawer and a wrong pattern');
  await page.keyboard.press('Escape');
  await page.tid('theme').focus();
  await page.keyboard.press('?');
  await nothingSerious(check, page, 'the help');
}

async function nothingSerious(check, page, words) {
  const { violations } = await page.evaluate(() =>
    window.axe.run(document, { resultTypes: ['violations'] }));
  const bad = violations.filter(({ impact }) => ['serious', 'critical'].includes(impact));
  check.equal(bad.map(({ id, nodes }) =>
    `${id}: ${nodes[0].html.slice(0, 150)} ${nodes[0].failureSummary.slice(0, 300)}`).join('; '),
  '', words);
}
