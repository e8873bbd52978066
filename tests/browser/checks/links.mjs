// What is chosen is kept in the address, and an address leads to the same again.
import { openPage } from '../lib/browser.mjs';
import { choices, filter, flameRows, follow, selectedName, tableRows } from '../lib/read.mjs';

export default async function ({ check, visit, browser, pages }) {
  await visit('kept and restored', 'go', 'fold=0', async page => {
    await page.keyboard.press('2');
    await filter(page, 'focus', 'parser');
    await filter(page, 'ignore', 'scanner');
    await page.locator('[data-k=objects]').click();
    await page.locator('[data-k=alloc]').click();
    await page.locator('[data-sort=cum]').click();
    await page.locator('tr[data-f]').nth(2).click();
    await page.keyboard.press('s');
    await page.keyboard.press('t');
    await page.tid('search').fill('parse');
    const shown = await state(page);
    await choices(page);
    const again = await openPage(browser, page.url());
    check.same(await state(again), shown, 'a link shows the same table');
    await again.end();
    await page.reload();
    await page.waitForFunction(() => document.documentElement.dataset.ready);
    check.same(await state(page), shown, 'so does loading it again');
  });
  await visit('a zoom', 'diff', 'view=flame', async page => {
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.keyboard.press('f');
    await choices(page);
    const boxes = await flameRows(page);
    const again = await openPage(browser, page.url());
    await again.settled();
    check.same(await flameRows(again), boxes, 'is in the link, with names');
    await again.end();
  });
  await visit('of another profile', 'go', '', async page => {
    await follow(page, 'view=table&sel=main.build&fam=alloc');
    check.equal(await selectedName(page), 'main.build', 'functions are found by name');
    await follow(page, 'view=nonsense&sel=nobody&a=7&b=x&fam=zzz&zoom=no&sort=zz&kinds=q&map=%00');
    check.equal(await page.tid('flame-canvas').count(), 1, 'what makes no sense is left out');
  });
  const hash = 'view=table&sel=' + encodeURIComponent('</script><img src=x onerror=alert(1)>') +
    '&search=' + encodeURIComponent('<img src=x onerror=alert(3)>') + '&theme=%22%3E%3Cb%3E';
  await visit('markup in a link', 'names', hash, async page => {
    const images = await page.evaluate(() => document.querySelectorAll('img').length);
    check.equal(images, 0, 'makes no element');
    const said = await page.tid('empty').textContent();
    check(said.includes('<img src=x'), 'and is shown as text');
  });
}

async function state(page) {
  await page.settled();
  const read = tid => page.tid(tid).inputValue();
  return [
    (await tableRows(page)).map(({ name, flat, cum }) => [name, flat, cum]),
    await read('focus'), await read('ignore'), await read('search'), await selectedName(page),
    await page.getAttribute('html', 'data-theme'), await page.tid('sql-drawer').isVisible(),
    await page.locator('th[aria-sort]').textContent(),
  ];
}
