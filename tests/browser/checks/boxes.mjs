// What stands in the boxes of the flame graph and the treemap: names that are cut at their end, and
// values. Boxes that a search did not find are dimmed.
import { answer } from '../lib/heapprof.mjs';
import { drawnOn, noteDrawing } from '../lib/drawn.mjs';
import { MAIN } from '../lib/pages.mjs';
import { flameRows, text } from '../lib/read.mjs';
import { isText } from '../lib/text.mjs';

const FULL = 1;
const STRING = 'std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >';
const SEARCHED = { go: 'main\\.', cpp: 'Hall', rust: 'rust_', diff: 'tree', series: 'session' };

export default async function ({ check, visit }) {
  const init = noteDrawing;
  for (const name of MAIN) {
    const hash = 'view=flame&fold=0&a=-1';
    await visit('values', name, hash, page => values(check, page), { init });
    await visit('names', name, hash, (page, of) => names(check, page, of, 'flame-canvas'),
      { init });
    await visit('dimmed', name, hash, page => dimmed(check, page, name, 'flame-canvas'), { init });
    await visit('treemap', name, 'view=map&fold=0&a=-1', async (page, of) => {
      await names(check, page, of, 'treemap-canvas');
      await dimmed(check, page, name, 'treemap-canvas');
      check(/%|no match/.test(await text(page, 'hits')), 'it says how much was found');
    }, { init });
  }
}

// The wide boxes at the top have their names, and behind them their values.
async function values(check, page) {
  const { words } = await drawnOn(page, 'flame-canvas');
  const rows = await flameRows(page);
  let found = 0;
  for (const { value } of rows.filter(({ level }) => level <= 3).slice(0, 4)) {
    const level = words.filter(word => isText(word.text, value, 'bytes'));
    found += level.some(word => words.some(other =>
      other.y === word.y && other.right < word.left && word.left - other.right < 12)) ? 1 : 0;
  }
  check(found > 0, `boxes show their values (${found})`);
  const inRow = y => words.filter(word => word.y === y).sort((a, b) => a.left - b.left);
  const isOver = words.some(({ y }) => inRow(y).some((word, i, all) =>
    i > 0 && word.left < all[i - 1].right));
  check(!isOver, 'no words are over others');
}

async function names(check, page, { last }, tid) {
  const known = answer('top', '-n', '0', last).rows.map(row => row.function)
    .concat((await flameRows(page)).map(row => row.name));
  const { words } = await drawnOn(page, tid);
  const cut = words.filter(({ font }) => !font.includes('600')).map(({ text: shown }) => shown)
    .filter(shown => /^[^…]+…$/.test(shown));
  const spelt = known.map(name => name.replaceAll(STRING, 'std::string'));
  const isHead = head => [...known, ...spelt].some(name => name.startsWith(head)
    || name.slice(name.lastIndexOf('/') + 1).startsWith(head) || name.includes(' ' + head));
  const wrong = cut.filter(shown => !isHead(shown.slice(0, -1)));
  check.equal(wrong.join(), '', `cut names keep their beginning (${cut.length})`);
}

async function dimmed(check, page, key, tid) {
  const pattern = SEARCHED[key];
  await page.tid('search').fill(pattern);
  await page.settled();
  const { words } = await drawnOn(page, tid);
  const regex = new RegExp(pattern);
  const isNameOf = word => word.alpha === FULL && !/^[▲▼]?$/.test(word.text);
  const strong = words.filter(isNameOf).filter(({ text: shown }) => !/^[+−]?[\d.]/.test(shown));
  const weak = words.filter(word => word.alpha < 0.5);
  const isDimmed = tid === 'treemap-canvas' || weak.length > 0;
  check(isDimmed, `what does not match is dimmed: ${weak.length}`);
  const isWrong = weak.filter(({ text: shown }) => regex.test(shown));
  check.equal(isWrong.map(word => word.text).join(), '', 'what matches is not');
  if (tid === 'treemap-canvas') return;
  const names = (await flameRows(page)).map(row => row.name).filter(name => regex.test(name));
  const others = strong.filter(({ text: shown }) => !shown.includes('…') && !regex.test(shown)
    && !names.some(full => full.endsWith(shown)));
  check.equal(others.map(word => word.text).join(), '', 'nothing else is strong');
  await page.tid('search').fill('');
  await page.settled();
  const again = await drawnOn(page, tid);
  check(again.words.every(word => word.alpha > 0.5), 'without a search, nothing is dimmed');
}
