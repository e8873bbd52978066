// Paper, a narrow screen, reduced motion, forced colours, and a browser without scripts.
import { MAIN, VIEWS } from '../lib/pages.mjs';
import { follow } from '../lib/read.mjs';

export default async function ({ check, visit, browser, pages }) {
  for (const name of MAIN) {
    await visit('print', name, 'view=table&theme=dark', page => print(check, page),
      { media: 'print' });
    for (const width of [800, 390]) {
      await visit(`${width} pixels wide`, name, '', page => narrow(check, page, width),
        { width, height: 900 });
    }
  }
  await visit('reduced motion', 'go', 'view=table', page => still(check, page),
    { context: { reducedMotion: 'reduce' } });
  await visit('forced colours', 'diff', 'view=table', async page => {
    check(await page.evaluate(() => matchMedia('(forced-colors: active)').matches), 'are on');
    check((await page.tid('top-table').textContent()).includes('▲'), 'signs stay');
  }, { context: { forcedColors: 'active' } });
  check.at('go: no scripts');
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(pages.go.address);
  check((await page.content()).includes('heapprof top'), 'the page says what to do');
  await context.close();
}

async function print(check, page) {
  check.equal(await page.getAttribute('html', 'data-theme'), 'light', 'paper is light');
  for (const view of VIEWS) {
    await follow(page, 'view=' + view);
    const hidden = await page.tid('tools').isHidden() && await page.locator('#bar').isHidden();
    const shown = await page.tid('view').isVisible() && await page.tid('panel').isVisible();
    check(hidden && shown, `${view} and the panel are printed, controls are not`);
  }
  const pdf = await page.pdf({ format: 'A4' });
  check(pdf.length > 5000, `and a PDF has ${(pdf.length / 1000).toFixed()} kB`);
}

async function narrow(check, page, width) {
  for (const view of VIEWS) {
    await page.tid('tab-' + view).click();
    await page.settled();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    check(wide <= width, `${view}: nothing is wider than the window (${wide})`);
  }
  const [view, panel] = [await page.tid('view').boundingBox(),
    await page.tid('panel').boundingBox()];
  check(panel.y > view.y + view.height - 1, 'the panel is below the view');
  check(view.width > width * 0.9, 'and the view has the whole width');
}

async function still(check, page) {
  const moving = await page.evaluate(() => [...document.querySelectorAll('*')].filter(one => {
    const { transitionDuration, animationName } = getComputedStyle(one);
    return animationName !== 'none' || transitionDuration.split(',').some(t => parseFloat(t) > 0);
  }).length);
  check.equal(moving, 0, 'nothing moves');
}
