// The picture of `heapprof flame` has the colours of the page's boxes, by function.
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { noteDrawing } from '../lib/drawn.mjs';
import { heapprof } from '../lib/heapprof.mjs';

export default async function ({ check, visit, browser, pages }) {
  for (const name of ['go', 'cpp', 'rust', 'python', 'diff']) {
    const { base, last } = pages[name];
    const drawn = heapprof('flame', base ? ['--base', base] : [], last);
    const file = join(mkdtempSync(join(tmpdir(), 'flame-')), 'out.svg');
    writeFileSync(file, drawn);
    const colours = await frameColours(browser, pathToFileURL(file).href);
    await visit('colours', name, 'view=flame', async page => {
      const boxes = await boxColours(page);
      const known = boxes.filter(box => colours.has(box.name));
      const wrong = known.filter(box => !colours.get(box.name).some(other => isNear(box.rgb, other)));
      check(known.length > 2, `boxes have frames of the same name (${known.length})`);
      check.equal(wrong.map(box => `${box.name} ${box.rgb}`).join(), '', 'they have its colours');
    }, { init: noteDrawing });
  }
}

// Returns {name: [[red, green, blue]]} of the frames of a picture.
async function frameColours(browser, address) {
  const page = await browser.newPage();
  await page.goto(address);
  const all = await page.$$eval('svg g title', titles => titles.map(title => [
    title.textContent.replace(/ \([^(]*\)$/, ''),
    title.parentElement.querySelector('rect')?.getAttribute('fill')]));
  await page.close();
  const found = new Map();
  for (const [name, fill] of all) {
    const rgb = (fill || '').match(/\d+/g)?.map(Number);
    if (rgb) found.set(name, [...found.get(name) || [], rgb]);
  }
  return found;
}

// Returns the name and the colour of each box that shows its name in full.
function boxColours(page) {
  return page.tid('flame-canvas').evaluate(canvas => {
    const { words } = window.drawnOn(canvas);
    // All pixels are read at once, because Chromium warns about several readings.
    const { data, width } = canvas.getContext('2d')
      .getImageData(0, 0, canvas.width, canvas.height);
    return words.filter(({ text, alpha }) => alpha === 1 && !text.includes('…') && text !== '▲' &&
      text !== '▼').map(({ text, left, y }) => {
      const ratio = devicePixelRatio;
      const at = 4 * (Math.round(y * ratio) * width + Math.round((left - 3) * ratio));
      return { name: text, rgb: [...data.slice(at, at + 3)] };
    });
  });
}

const isNear = (a, b) => a.every((channel, i) => Math.abs(channel - b[i]) <= 2);
