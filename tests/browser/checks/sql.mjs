// The drawer with SQL: the statement of each view runs in `heapprof sql -p` and gives the numbers
// of the view, and the command runs in a shell.
import { heapprof, inShell } from '../lib/heapprof.mjs';
import { MAIN } from '../lib/pages.mjs';
import { filter, flameRows, tableRows, text } from '../lib/read.mjs';

export default async function ({ check, visit }) {
  for (const name of MAIN) {
    const hash = 'view=table&fold=0&sqlopen=1' + (name === 'diff' ? '' : '&a=-1');
    await visit('SQL of each view', name, hash, (page, of) => eachView(check, page, of));
  }
  await visit('what is filled in', 'hostile', 'view=table&fold=0&sqlopen=1', (page, of) =>
    filledIn(check, page, of));
}

async function eachView(check, page, of) {
  const several = ['timeline', 'growth'];
  for (const view of ['table', 'flame', 'map', 'sizes', 'timeline', 'growth']) {
    await page.tid('tab-' + view).click();
    await page.settled();
    const profiles = several.includes(view) ? of.profiles
      : [of.base, of.last].filter(Boolean);
    const rows = await run(check, page, profiles, view);
    if (rows) await compare(check, page, of, view, rows);
    const command = (await text(page, 'command-text')).replace(/^\$ /, '');
    const isLong = of.profiles.length > 1 && view === 'growth';
    const said = inShell(command.replace(/-o report.html/, '-o /dev/null')
      .replace(/ > \S+$/, ' > /dev/null'));
    check(said.length > 0 || isLong || / \/dev\/null|flame|report/.test(command),
      `${view}: the command runs: ${command.slice(0, 80)}`);
  }
  await page.keyboard.press('2');
  await page.locator('tr[data-f]').first().click();
  await page.keyboard.press('p');
  await page.settled();
  await run(check, page, [of.last], 'pivot');
}

async function run(check, page, profiles, view) {
  const statement = await text(page, 'sql-text');
  try {
    const flags = profiles.flatMap(one => ['-p', one]);
    const rows = JSON.parse(heapprof('sql', '--all-code', '--format', 'json', ...flags, statement));
    check(rows.length > 0, `${view}: the SQL runs (${rows.length} rows)`);
    return rows;
  } catch (error) {
    check(false, `${view}: ${String(error.stderr || error).slice(0, 200)}: ${statement}`);
    return null;
  }
}

async function compare(check, page, of, view, rows) {
  if (view === 'table' && !of.base) {
    const shown = (await tableRows(page)).map(row => [row.name, row.flat, row.cum]);
    const wanted = rows.filter(row => row.flat || row.cum)
      .map(row => [row.name, row.flat, row.cum]);
    check.same(shown.map(String).sort(), wanted.map(String).sort(), 'with the rows of the table');
  } else if (view === 'table') {
    const shown = (await tableRows(page)).filter(row => row.delta)
      .map(row => [row.name, row.before, row.after]);
    const wanted = rows.filter(row => row.before !== row.after)
      .map(row => [row.name, row.before, row.after]);
    check.same(shown.map(String).sort(), wanted.map(String).sort(), 'with the rows of the table');
  } else if (view === 'flame' && !of.base) {
    const roots = rows.filter(row => row.depth === 0);
    const [box] = await flameRows(page);
    const sum = roots.reduce((all, row) => all + row.total, 0);
    check.equal(sum, box.value, 'with the total of the graph');
  }
}

async function filledIn(check, page, { last }) {
  check((await text(page, 'sql-text')).includes("s.type = 'inuse_space'"), 'the type');
  await page.locator('[data-k=alloc]').click();
  await filter(page, 'ignore', "it's");
  check((await text(page, 'sql-text')).includes("s.type = 'alloc_space'"), 'and it follows');
  const command = await text(page, 'command-text');
  check(command.startsWith("$ heapprof top -t alloc_space --ignore 'it'\\''s' "), command);
  await filter(page, 'ignore', '');
  await page.locator('[data-k=inuse]').click();
  const count = await page.locator('tr[data-f]').count();
  for (let i = 0; i < count; i++) {
    await page.keyboard.press('2');
    await page.locator('tr[data-f]').nth(i).click();
    const name = await page.locator('tr[data-f]').nth(i).getAttribute('data-name');
    await page.tid('pivot').click();
    await page.settled();
    const said = inShell((await text(page, 'command-text')).replace(/^\$ /, ''));
    check(said.includes('caller') || said.includes('(root)'),
      `peek finds ${JSON.stringify(name).slice(0, 40)}`);
    const statement = await text(page, 'sql-text');
    const asked = ['sql', '--all-code', '--format', 'json', '-p', last, statement];
    const found = JSON.parse(heapprof(...asked));
    if (!/\\x|\\u/.test(statement)) check.equal(found[0]?.name, name, 'and so does the SQL');
    await page.keyboard.press('Escape');
  }
}
