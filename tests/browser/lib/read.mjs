// Reads what a page shows: rows, words, and the choices that its address keeps.

// Returns the rows of the table, all of them, as their attributes say.
export async function tableRows(page) {
  while (await page.tid('more').count()) await page.tid('more').click();
  return page.$$eval('[data-testid=top-table] tr[data-f]', rows => rows.map(row => {
    const number = key => row.dataset[key] == null ? null : Number(row.dataset[key]);
    const cells = [...row.cells].map(cell => cell.textContent);
    return {
      f: number('f'), name: row.dataset.name, flat: number('flat'), cum: number('cum'),
      before: number('before'), after: number('after'), delta: number('delta'), cells,
      cumBefore: number('cumBefore'),
    };
  }));
}

// Returns the rows of the table beside the flame graph: [{name, value, level, id}].
export function flameRows(page) {
  return page.$$eval('[data-testid=flame-mirror] tbody tr', rows => rows.map(row => ({
    name: row.dataset.name, value: Number(row.dataset.value), id: row.id,
    before: Number(row.dataset.before), level: Number(row.getAttribute('aria-level')),
  })));
}

// Returns [name, value] of each row of a list in the panel.
export function listRows(page, tid) {
  return page.$$eval(`[data-testid="${tid}"] .row`, rows =>
    rows.map(row => [row.dataset.name, Number(row.dataset.value)]));
}

export const text = (page, tid) => page.tid(tid).textContent();
export const selectedName = page => page.tid('panel-name').getAttribute('data-name');

// Returns the choices in the address. The page writes them a little later, after 120 ms; a timer of
// the page itself that is longer ends after that one.
export async function choices(page) {
  await pageTime(page, 150);
  return new URLSearchParams(new URL(page.url()).hash.slice(1));
}

// Types into a field for a filter, and waits until the page has followed.
export async function filter(page, field, pattern) {
  await page.tid(field).fill(pattern);
  await pageTime(page, 200);
  await page.settled();
}

// Lets the page's own timers of less than so many milliseconds end.
export function pageTime(page, ms) {
  return page.evaluate(time => new Promise(done => setTimeout(done, time)), ms);
}

// Returns the card at the pointer after it has moved: {title, and what: words}.
export async function cardAt(page, x, y) {
  await page.mouse.move(x, y);
  await page.settled();
  if (await page.locator('#tip').isHidden()) return null;
  const rows = await page.$$eval('#tip tr', all => all.map(row =>
    [...row.cells].map(cell => cell.textContent)));
  return { title: await page.locator('#tip .fn').textContent(), ...Object.fromEntries(rows) };
}

// Follows an address within the page.
export async function follow(page, hash) {
  await page.evaluate(to => new Promise(done => {
    addEventListener('hashchange', done, { once: true });
    if (location.hash === '#' + to) done();
    location.hash = to;
  }), hash);
  await page.settled();
}

// Whether anything is painted on a canvas.
export function isPainted(page, tid) {
  return page.tid(tid).evaluate(canvas => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.some(byte => byte !== 0);
  });
}

// Clicks a box of the flame graph: in the row of `level`, at a share of the width.
export async function clickRow(page, level, share = 0.05, options = {}) {
  const box = await page.tid('flame-canvas').boundingBox();
  const position = { x: Math.max(8, box.width * share), y: level * 19 + 9 };
  await page.tid('flame-canvas').click({ position, ...options });
  await page.settled();
}
