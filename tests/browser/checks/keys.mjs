// The keyboard alone: every view is reached and used, and Tab reaches every control.
import { MAIN, VIEWS } from '../lib/pages.mjs';
import { choices, selectedName, tableRows, text } from '../lib/read.mjs';

export default async function ({ check, visit }) {
  for (const name of MAIN) {
    await visit('keys', name, '', page => letters(check, page));
    await visit('keyboard only', name, 'view=flame&a=-1', page => only(check, page));
  }
  await visit('tab order', 'diff', '', page => reach(check, page));
  await visit('comparison by keys', 'series', '', page => series(check, page));
}

const isPressed = async (page, place) =>
  await page.locator(place).getAttribute('aria-pressed') === 'true';

async function letters(check, page) {
  for (let i = VIEWS.length - 1; i >= 0; i--) {
    await page.keyboard.press(String(i + 1));
    const tab = page.tid('tab-' + VIEWS[i]);
    check.equal(await tab.getAttribute('aria-selected'), 'true', `${i + 1} is ${VIEWS[i]}`);
  }
  await page.keyboard.press('b');
  check(await isPressed(page, '[data-k=objects]'), 'B counts objects');
  // Where no function is a library's, there is nothing to fold.
  if (await page.tid('fold').count()) {
    const own = await isPressed(page, '[data-testid=fold]');
    await page.keyboard.press('o');
    check.equal(await isPressed(page, '[data-testid=fold]'), !own, 'O is own code');
  }
  await page.keyboard.press('s');
  check(await page.tid('sql-drawer').isVisible(), 'S opens the SQL');
  await page.keyboard.press('s');
  check(!await page.tid('sql-drawer').isVisible(), 'and closes it');
  await page.keyboard.press('t');
  check.equal(await page.getAttribute('html', 'data-theme'), 'dark', 'T turns it dark');
  await page.keyboard.press('?');
  check(await page.tid('help').isVisible(), '? opens the help');
  await page.keyboard.press('Escape');
  await page.settled();
  check.equal(await page.tid('help').count(), 0, 'Escape closes it');
  await page.tid('focus').focus();
  await page.keyboard.press('t');
  check.equal(await page.getAttribute('html', 'data-theme'), 'dark', 'no key works in a field');
  await page.keyboard.press('Escape');
  await page.tid('tab-flame').focus();
  await page.keyboard.press('ArrowRight');
  const tab = page.tid('tab-table');
  check.equal(await tab.getAttribute('aria-selected'), 'true', 'arrows move the tabs');
  check(await tab.evaluate(one => one === document.activeElement), 'and the focus follows');
}

async function only(check, page) {
  await page.keyboard.press('ArrowDown');
  await page.settled();
  const first = await selectedName(page);
  const active = await page.tid('flame-mirror').getAttribute('aria-activedescendant');
  const row = page.locator('#' + active);
  check.equal(await row.getAttribute('data-name'), first, `an arrow moves to ${first}`);
  check.equal(await row.getAttribute('aria-selected'), 'true', 'and its row is selected');
  check((await text(page, 'live')).startsWith(first.slice(0, 5)), 'which is announced');
  await page.keyboard.press('Enter');
  await page.settled();
  check.equal((await choices(page)).getAll('zoom').length, 1, 'Enter zooms');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  check.equal(await page.tid('panel-name').count(), 0, 'Escape leads back to the overview');
  await page.keyboard.press('2');
  await page.keyboard.press('Tab');
  await page.tid('view').focus();
  await page.keyboard.press('ArrowDown');
  const rows = await tableRows(page);
  check.equal(await selectedName(page), rows[0].name, 'in the table an arrow selects');
  if (rows.length > 1) {
    await page.keyboard.press('ArrowDown');
    check.equal(await selectedName(page), rows[1].name, 'and the next one');
  }
  const chosen = await selectedName(page);
  await page.keyboard.press('Enter');
  check((await text(page, 'crumbs')).startsWith('Pivot on '), `Enter pivots on ${chosen}`);
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await page.keyboard.press('3');
  const words = await page.tid('treemap').getAttribute('aria-label');
  check(/table view lists the same/.test(words), 'the treemap says where its functions are listed');
  const module = page.tid('panel').locator('button.row:not([data-name])').first();
  await module.focus();
  await page.keyboard.press('Enter');
  const map = (await choices(page)).get('map');
  check(map && (await text(page, 'tools')).includes('✕'), `a module of the panel opens: ${map}`);
  await page.keyboard.press('Escape');
  check.equal((await choices(page)).get('map'), null, 'and Escape closes it');
}

async function reach(check, page) {
  const wanted = ['sql-button', 'theme', 'tab-flame', 'focus', 'ignore', 'fold', 'search', 'invert',
    'flip', 'flame-mirror'];
  const seen = new Set();
  await page.keyboard.press('Tab');
  check.equal(await page.evaluate(() => document.activeElement.id), 'skip', 'first, a way past it');
  await page.keyboard.press('Enter');
  check.equal(await page.evaluate(() => document.activeElement.id), 'view', 'to the view');
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press('Tab');
    seen.add(await page.evaluate(() => document.activeElement.dataset.testid || ''));
  }
  check.equal(wanted.filter(tid => !seen.has(tid)).join(), '', 'Tab reaches each control');
}

async function series(check, page) {
  await page.keyboard.press('5');
  await page.keyboard.press('Shift+ArrowLeft');
  await page.keyboard.press('Shift+ArrowLeft');
  const hash = await choices(page);
  check.equal([hash.get('a'), hash.get('b')].filter(Boolean).length, 2, 'two moments are compared');
  await page.keyboard.press('6');
  await page.tid('view').focus();
  await page.keyboard.press('ArrowDown');
  check.equal(await selectedName(page), 'session.Begin', 'rows of growth are reached');
  await page.keyboard.press('Enter');
  check((await text(page, 'crumbs')).startsWith('Pivot on '), 'and lead to a pivot');
}
