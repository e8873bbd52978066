// The pages that are checked: files of `heapprof report`. `servePages` makes served ones of them.
import { readFileSync, readdirSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

// The five kinds of profile that each view is driven on.
export const MAIN = ['go', 'cpp', 'rust', 'diff', 'series'];
export const VIEWS = ['flame', 'table', 'map', 'sizes', 'timeline', 'growth'];

// Returns {name: {name, address, file, base, profile, profiles, last, options}}. `profiles` are the
// moments of a series, `last` is the profile that a page opens on.
export function listPages() {
  const folder = process.env.PAGES;
  const pages = {};
  for (const line of readFileSync(folder + '/list.tsv', 'utf8').trimEnd().split('\n')) {
    const [name, base, profile, options] = line.split('\t');
    const file = `${folder}/${name}.html`;
    const profiles = profile.endsWith('.gz') ? [profile]
      : readdirSync(`${process.env.PROFILES}/${profile}`).sort().map(one => `${profile}/${one}`);
    pages[name] = {
      name, file, profile, profiles, base: base === '-' ? null : base,
      address: pathToFileURL(file).href, last: profiles.at(-1),
      options: options.split(' ').filter(Boolean),
    };
  }
  return pages;
}
