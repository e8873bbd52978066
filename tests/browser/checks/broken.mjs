// A file that was cut off or changed says so, in words, and nothing else goes wrong.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const CUT = /cut off.*\d+ of (\d+|\?) characters/s;
const BAD = /cannot be read|cut off/;

export default async function ({ check, visit, pages }) {
  const folder = process.env.WORK + '/broken';
  mkdirSync(folder, { recursive: true });
  for (const name of ['go', 'diff', 'series']) {
    const whole = readFileSync(pages[name].file, 'utf8');
    const at = whole.indexOf('id="data"');
    const data = whole.match(/id="data" data-chars="\d+">([^<]*)/)[1];
    const cases = {
      'cut in the middle': [whole.slice(0, at + 900), CUT],
      'cut at the end': [whole.slice(0, at + data.length - 3), CUT],
      'cut before the data': [whole.slice(0, at - 41), CUT],
      'without its first bytes': [whole.replace(data, 'AAAA' + data.slice(4)), BAD],
      'with a byte changed': [whole.replace(data, changed(data)), BAD],
      'with other data': [whole.replace(data, 'eJwDAAAAAAE='.padEnd(data.length, '=')), BAD],
    };
    for (const [title, [text, wanted]] of Object.entries(cases)) {
      const file = `${folder}/${name}.${title.replaceAll(' ', '-')}.html`;
      writeFileSync(file, text);
      await visit(`${name}, ${title}`, pathToFileURL(file).href, '', async page => {
        const said = await page.tid('error').textContent({ timeout: 3000 });
        check(wanted.test(said), `it says so: ${said.slice(0, 150)}`);
      });
    }
  }
}

function changed(data) {
  const at = Math.floor(data.length / 2);
  return data.slice(0, at) + (data[at] === 'A' ? 'B' : 'A') + data.slice(at + 1);
}
