// Starts `heapprof web`, so that checks drive the page of a real server.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

// The checks that served pages go through as well. The others are about files, or about servers.
export const SERVED = [
  'axe', 'brush', 'cards', 'diff', 'filters', 'growth', 'imports', 'keys', 'lines', 'links',
  'media', 'names', 'panel', 'search', 'sql', 'summary', 'table', 'timeline', 'tree', 'views',
  'zoom',
];
// What only a report does to its page.
const OF_FILES = /--(anonymize|paths)/;

const running = new Set();
// Whatever happens, no server outlives the checks.
process.on('exit', () => running.forEach(child => child.kill()));

// Starts a server with these arguments, and waits for the address that it prints.
export async function startWeb(...words) {
  const child = spawn(process.env.HEAPPROF, ['web', '--no-open', ...words.flat()],
    { cwd: process.env.PROFILES, stdio: ['ignore', 'pipe', 'pipe'] });
  running.add(child);
  let said = '';
  child.stderr.on('data', text => { said += text; });
  const ended = new Promise(done => child.on('close', (code, signal) => {
    running.delete(child);
    done(signal || code);
  }));
  const lines = createInterface({ input: child.stdout });
  const address = await Promise.race([
    new Promise(done => lines.once('line', done)),
    ended.then(code => { throw new Error(`heapprof web ended with ${code}: ${said}`); }),
  ]);
  const { origin, searchParams } = new URL(address);
  return {
    address, origin, token: searchParams.get('token'),
    // Asks the interface as a program does.
    ask: (path, parameters = {}, options = {}) => fetch(`${origin}/api/v1/${path}?` +
      new URLSearchParams({ token: searchParams.get('token'), ...parameters }), options),
    // Ends the server, and returns its exit code.
    stop() {
      child.kill('SIGTERM');
      return ended;
    },
  };
}

// Starts a server for each of the pages. Returns the pages with the servers' addresses.
export async function servePages(pages) {
  const asServed = async page => {
    const base = page.base ? ['--base', page.base] : [];
    const server = await startWeb(base, page.options, page.profile);
    return [page.name, { ...page, server, address: server.address }];
  };
  const all = Object.values(pages).filter(({ options }) => !OF_FILES.test(options.join(' ')));
  return Object.fromEntries(await Promise.all(all.map(asServed)));
}
