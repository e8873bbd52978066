// Makes pages of other flame graphs with the tree of a report, for bench/page.mjs.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';

const PACKAGES = { 'd3-flame-graph': '5.0.0', d3: '7.9.2', speedscope: '1.25.0' };

// Installs the packages into a folder. Returns why that is not possible, or null.
export function install(folder) {
  mkdirSync(folder, { recursive: true });
  if (existsSync(folder + '/node_modules/speedscope')) return null;
  writeFileSync(folder + '/package.json', JSON.stringify({ name: 'peers', private: true }));
  const wanted = Object.entries(PACKAGES).map(([name, version]) => `${name}@${version}`);
  try {
    execFileSync('npm', ['install', '--silent', '--ignore-scripts', '--prefix', folder, ...wanted]);
    return null;
  } catch (error) {
    return 'npm could not install them: ' + String(error.message).split('\n')[0];
  }
}

// Fills the prototype's template with the data of a report.
export function prototypePage(folder, report, out) {
  const read = name => readFileSync(`${folder}/${name}`, 'utf8');
  const [css, js] = [read('style.css'), read('app.js')];
  const [, characters, data] = readFileSync(report, 'utf8')
    .match(/id="data" data-chars="(\d+)">([^<]*)/);
  const hash = text => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
  const values = {
    CSP: `default-src 'none'; script-src ${hash(js)}; style-src ${hash(css)}`,
    TITLE: 'prototype', CSS: css, JS: js, CHARS: characters, DATA: data,
  };
  writeFileSync(out, read('page.html').replace(/%([A-Z]+)%/g, (_, key) => values[key]));
}

// Writes a page that draws the rows of `heapprof tree` with d3-flame-graph.
export function d3Page(modules, rows, out) {
  const root = { name: 'all', value: 0, children: [] };
  const path = [root];
  for (const { depth, function: name, total } of rows) {
    path.length = depth + 1;
    const node = { name, value: total, children: [] };
    path[depth].children.push(node);
    if (!depth) root.value += total;
    path.push(node);
  }
  const read = name => readFileSync(`${modules}/node_modules/${name}`, 'utf8');
  const style = read('d3-flame-graph/dist/d3-flamegraph.css');
  const scripts = ['d3/dist/d3.min.js', 'd3-flame-graph/dist/d3-flamegraph.umd.min.js'].map(read);
  const draw = `const data = JSON.parse(document.getElementById('data').textContent);
    window.chart = flamegraph.default().width(innerWidth - 20).transitionDuration(0);
    d3.select('#chart').datum(data).call(chart);
    requestAnimationFrame(() => setTimeout(() => { window.painted = performance.now(); }));`;
  const tag = text => `<script>${text.replaceAll('</script', '<\\/script')}</script>`;
  const data = JSON.stringify(root).replaceAll('<', '\\u003c');
  writeFileSync(out, ['<!doctype html><meta charset="utf-8"><title>d3</title>',
    `<style>${style}</style>`, '<div id="chart"></div>',
    `<script type="application/json" id="data">${data}</script>`,
    ...[...scripts, draw].map(tag)].join('\n'));
}

// Returns the address of speedscope with a profile, as its own command line opens it.
export function speedscopePage(modules, profile, out) {
  const data = readFileSync(profile).toString('base64');
  writeFileSync(out, `speedscope.loadFileFromBase64("profile.pb.gz", "${data}")`);
  const index = `${modules}/node_modules/speedscope/dist/release/index.html`;
  return `file://${index}#localProfilePath=${out}`;
}
