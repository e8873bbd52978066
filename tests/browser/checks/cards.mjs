// The card at the pointer in the flame graph and in the treemap, and clicks in the treemap.
import { answer } from '../lib/heapprof.mjs';
import { MAIN } from '../lib/pages.mjs';
import { cardAt, choices, flameRows, selectedName, text } from '../lib/read.mjs';
import { isText } from '../lib/text.mjs';

export default async function ({ check, visit }) {
  for (const name of MAIN) {
    await visit('cards of boxes', name, 'view=flame&fold=0&a=-1', page => boxes(check, page));
    await visit('tiles', name, 'view=map&fold=0&a=-1', (page, of) => tiles(check, page, of));
  }
}

// Compares what cards say with the rows of the table beside the graph.
async function boxes(check, page) {
  const known = new Map();
  for (const { name, value } of await flameRows(page)) {
    known.set(name, [...known.get(name) || [], value]);
  }
  const box = await page.tid('flame-canvas').boundingBox();
  const wrong = [];
  let seen = 0;
  for (let row = 1; row < 9; row++) {
    for (const share of [0.02, 0.3, 0.6, 0.9]) {
      const card = await cardAt(page, box.x + box.width * share, box.y + row * 19 + 9);
      const values = card && known.get(card.title);
      if (!values) continue;
      seen++;
      const said = card['here (cum)'].split(' · ')[0];
      if (!values.some(value => isText(said, value, 'bytes'))) wrong.push(`${card.title}: ${said}`);
    }
  }
  check(seen > 3, `${seen} boxes have a card`);
  check.equal(wrong.join('; '), '', 'and it says the cum of the box');
}

async function tiles(check, page, { last }) {
  const flat = new Map(answer('top', '-n', '0', last).rows.map(row => [row.function, row.flat]));
  const box = await page.tid('treemap-canvas').boundingBox();
  const seen = new Map();
  let title = null;
  for (let x = 0.02; x < 1; x += 0.08) {
    for (let y = 0.02; y < 1; y += 0.09) {
      const at = [box.x + box.width * x, box.y + box.height * y];
      const card = await cardAt(page, ...at);
      if (!card) continue;
      if (!card['own (flat)']) title ||= { at, name: card.title };
      else seen.set(card.title, [card['own (flat)'].split(' · ')[0], at]);
    }
  }
  const wrong = [...seen].filter(([name, [said]]) => !isText(said, flat.get(name), 'bytes'));
  check(seen.size > 0, `${seen.size} tiles have a card`);
  check.equal(wrong.join('; '), '', 'and it says the flat of the function');
  const [name, [, place]] = [...seen][0];
  await page.mouse.click(...place);
  check.equal(await selectedName(page), name, 'a click on a tile fills the panel');
  if (!title) return;
  await page.mouse.click(...title.at);
  check.equal((await choices(page)).get('map'), title.name, 'a click on a title opens the module');
  check((await text(page, 'tools')).includes('✕ ' + title.name), 'with a way back');
}
