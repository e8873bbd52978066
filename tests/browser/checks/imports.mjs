// Python's imports: under own code, they are frames `import NAME`, as in `heapprof top`. All code
// shows importlib.
import { answer } from '../lib/heapprof.mjs';
import { flameRows, follow, tableRows } from '../lib/read.mjs';

const byName = rows => rows.filter(row => row.flat || row.cum)
  .map(row => [row.name ?? row.function, row.flat, row.cum])
  .sort((a, b) => a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] - b[1] || a[2] - b[2]);

export default async function ({ check, visit, isServed }) {
  await visit('own code', 'python', 'view=table', async (page, { last }) => {
    const { rows } = answer('top', 'own', '-n', '0', '-t', 'inuse_space', last);
    await follow(page, 'view=table&fam=inuse');
    const shown = await tableRows(page);
    check.same(byName(shown), byName(rows), 'the rows are those of top');
    check(shown.some(({ name }) => name === 'import decimals'), 'an import has a row');
    check(!shown.some(({ name }) => name === '_find_and_load'), 'importlib has none');
    await page.locator('tr[data-name="import decimals"]').click();
    await page.tid('focus-on').click();
    await page.settled();
    const [root] = await flameOf(page);
    const { cum } = shown.find(({ name }) => name === 'import decimals');
    check.equal(root.value, cum, `Focus keeps it${isServed ? ', by its file' : ''}`);
  });
  await visit('all code', 'python', 'view=table&fold=0&fam=inuse', async (page, { last }) => {
    const { rows } = answer('top', '-n', '0', '-t', 'inuse_space', last);
    const shown = await tableRows(page);
    check.same(byName(shown), byName(rows), 'the rows are those of top --all-code');
    check(shown.some(({ name }) => name === '_find_and_load'), 'importlib has rows');
    check(!shown.some(({ name }) => name.startsWith('import ')), 'imports have none');
  });
  await visit('by line', 'python', 'view=flame&fam=inuse&lines=1', async page => {
    const names = (await flameRows(page)).map(row => row.name);
    check(names.includes('import decimals'), 'the graph by line folds imports, too');
    await page.keyboard.press('o');
    await page.settled();
    const all = (await flameRows(page)).map(row => row.name);
    check(all.includes('_find_and_load'), 'O shows importlib');
  });
}

async function flameOf(page) {
  await page.tid('tab-flame').click();
  await page.settled();
  return flameRows(page);
}
