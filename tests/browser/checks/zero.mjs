// A type whose values are all 0 leaves no blank page: the page says why, and leads to a type that
// has some.
import { flameRows, text } from '../lib/read.mjs';

const VIEWS = ['flame', 'table', 'map', 'sizes'];

export default async function ({ check, visit }) {
  for (const view of VIEWS) {
    await visit(`freed, ${view}`, 'freed', `view=${view}&fam=inuse`, async page => {
      const said = await text(page, 'empty');
      check(said.includes('inuse_space is 0 in every sample'), 'it says what is 0');
      check(said.includes('was freed') && said.includes('alloc_space is 6.84 KiB'),
        `why, and what is not: ${said}`);
      await page.tid('show-other').click();
      await page.settled();
      check.equal(await page.tid('empty').count(), 0, 'the button shows the other type');
      await page.tid('tab-flame').click();
      await page.settled();
      const [root] = await flameRows(page);
      check.equal(root.value, 7000, 'with its values');
    });
    await visit(`nothing, ${view}`, 'nothing', `view=${view}`, async page => {
      check((await text(page, 'empty')).includes('no values other than 0'), 'it says so');
    });
  }
}
