// What `--anonymize`, `--paths`, `--source` and `--max-nodes` leave in a page.
import { readFileSync } from 'node:fs';
import { inflateSync } from 'node:zlib';
import { answer } from '../lib/heapprof.mjs';
import { listRows, tableRows, text } from '../lib/read.mjs';

export default async function ({ check, visit, pages }) {
  const { rows, total } = answer('top', '-n', '0', pages.plain.last);
  const hash = 'view=table&fold=0';
  await visit('--anonymize', 'hidden', hash, async page => {
    const shown = await tableRows(page);
    const numbers = list => list.map(row => [row.flat, row.cum]).sort().map(String);
    check.same(numbers(shown), numbers(rows), 'the numbers are the same');
    const words = head(pages.hidden) + await page.evaluate(() => document.body.innerText);
    const left = rows.filter(row => row.function.length > 6 && words.includes(row.function));
    check.equal(left.map(row => row.function).join(), '', 'no name is left');
    check(!/\.go\b|leaky|\/src\//.test(words), 'no path is left');
  });
  await visit('--paths none', 'short', hash, async page => {
    const words = head(pages.short);
    check(!/\.go"/.test(words) && !words.includes('valid/'), 'no path is in the file');
    await page.locator('tr[data-f]').first().click();
    check((await text(page, 'panel')).includes('no source file'), 'and the panel says so');
  });
  await visit('--paths full', 'full', hash, async page => {
    check(/\.go"/.test(head(pages.full)), 'paths are in the file');
    await page.locator('tr[data-f]').first().click();
    check(/\.go:\d+/.test(await text(page, 'panel')), 'and in the panel');
  });
  await visit('--source', 'source', 'view=table&fold=0&sel=keep_note', async page => {
    check((await text(page, 'lines')).includes('malloc(3000)'), 'a line has its text');
    check(!head(pages.waves).includes('malloc(3000)'), 'which is not there without it');
    check((await listRows(page, 'lines')).length > 0, 'lines have values');
  });
  await visit('--max-nodes', 'few', hash, async page => {
    const shown = await tableRows(page);
    check.equal(shown.reduce((sum, row) => sum + row.flat, 0), total, 'rows add up as before');
    check(shown.some(row => row.name === '(other)'), 'what is left out is a row');
    const foot = await text(page, 'status');
    const hold = /\d+ nodes, (\d+) of them \(other\) with .+ ·/;
    check(hold.test(foot), `the last line says so: ${foot}`);
    check(readFileSync(pages.few.file).length < readFileSync(pages.plain.file).length, 'smaller');
  });
  check.at('options: what is said');
  const said = readFileSync(pages.hidden.file.replace('.html', '.said'), 'utf8');
  check(said.includes('names are hashed'), said.trim().split('; ').slice(1).join('; '));
}

// Returns the names and texts that the data of a page begin with.
function head({ file }) {
  const data = readFileSync(file, 'utf8').match(/id="data" data-chars="\d+">([^<]*)/)[1];
  const raw = inflateSync(Buffer.from(data, 'base64'));
  return raw.subarray(4, 4 + raw.readUInt32LE(0)).toString('utf8');
}
