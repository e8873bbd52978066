// The table has the numbers of `heapprof top`, in every sample type, and sorts by every column.
import { answer } from '../lib/heapprof.mjs';
import { MAIN } from '../lib/pages.mjs';
import { choices, follow, tableRows } from '../lib/read.mjs';
import { isText, unitOf } from '../lib/text.mjs';

const OTHERS = ['waves', 'cpu', 'perl', 'names', 'negative', 'recursion', 'inlines',
  'sampled'];

export default async function ({ check, visit }) {
  for (const name of [...MAIN, ...OTHERS]) {
    await visit('the table', name, 'view=table', (page, of) => numbers(check, page, of));
  }
  for (const name of MAIN) {
    await visit('sort', name, 'view=table&a=-1&fold=0', (page, of) => sort(check, page, of));
  }
}

async function numbers(check, page, { name, last }) {
  const types = answer('sql', '-p', last, 'SELECT type FROM sample_type').map(({ type }) => type);
  for (const type of types) {
    for (const own of [false, true]) {
      const pair = type.match(/^(.+)_(objects|space)$/);
      const [family, kind] = pair ? pair.slice(1) : [type, 'own'];
      await follow(page, `view=table&a=-1&fam=${family}&unit=${kind}&fold=${own ? 1 : 0}`);
      const { rows, total } = answer('top', '-n', '0', '-t', type, own ? 'own' : [], last);
      if (!rows.length && await page.tid('empty').count()) {
        check(total === 0 || await page.tid('empty').count(), `${type}: nothing, and it says so`);
        continue;
      }
      const shown = await tableRows(page);
      const words = type + (own ? ', own code' : '');
      check.same(byFunction(shown, 'name'), byFunction(rows, 'function'), words);
      const sum = shown.reduce((all, row) => all + row.flat, 0);
      const whole = rows.reduce((all, row) => all + row.flat, 0);
      check.equal(sum, whole, `${words}: rows add up`);
      if (pair) {
        check(shown.slice(0, 50).every(row => isText(row.cells[0], row.flat, unitOf(type)) &&
          isText(row.cells[1], row.cum, unitOf(type))), `${words}: cells say the numbers`);
      }
    }
  }
}

// Functions of one name may lie in several files, so rows are compared in an order of their own.
function byFunction(rows, key) {
  return rows.filter(({ flat, cum }) => flat || cum)
    .map(row => [row[key], row.flat, row.cum])
    .sort((a, b) => a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] - b[1] || a[2] - b[2]);
}

async function sort(check, page, { last }) {
  const heads = await page.$$eval('[data-sort]', all => all.map(head => head.dataset.sort));
  check.equal(heads.join(), 'flat,cum,obj,mean,name', 'the columns');
  const count = (await tableRows(page)).length;
  const values = {
    flat: row => row.flat, cum: row => row.cum, name: row => row.name,
    obj: row => amount(row.cells[2]), mean: row => amount(row.cells[3]),
  };
  for (const key of heads) {
    for (let click = 0; click < 2; click++) {
      const head = page.locator(`[data-sort=${key}]`);
      if (key !== 'flat' || click) await head.click();
      const order = await page.locator('th[aria-sort]').getAttribute('aria-sort');
      const rows = await tableRows(page);
      const isDown = order === 'descending';
      const isRight = rows.length === count && rows.every((row, i) => {
        if (!i) return true;
        const [a, b] = [values[key](rows[i - 1]), values[key](row)];
        return isDown ? a >= b : a <= b;
      });
      check(isRight, `sorted by ${key}, ${order}`);
      if (key !== 'flat') {
        check(await head.evaluate(one => one === document.activeElement), 'the focus stays');
      }
    }
  }
  check.equal((await choices(page)).get('sort'), 'name', 'the order is in the address');
  for (const [key, flag] of [['flat', 'flat'], ['cum', 'cum']]) {
    await page.locator(`[data-sort=${key}]`).click();
    const wanted = answer('top', '-n', '60', '--sort', flag, last).rows;
    const rows = (await tableRows(page)).slice(0, wanted.length);
    check.same(rows.map(row => row[key]), wanted.map(row => row[key]), `first rows by ${key}`);
  }
}

// Reads a number that was written for people; no text is 0.
function amount(text) {
  const found = text.match(/([\d.]+) ?(KiB|MiB|GiB|k|M|G)?/);
  const scale = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, k: 1e3, M: 1e6, G: 1e9 };
  return found ? Number(found[1]) * (scale[found[2]] || 1) : 0;
}
