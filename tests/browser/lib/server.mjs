// A small server that answers a page as `heapprof web` does, with containers of report pages. It
// says what it was asked, and can be told to fail.
import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';

// Returns the data of a report page, as the page unpacks them.
export function containerOf({ file }) {
  const html = readFileSync(file, 'utf8');
  return Buffer.from(html.match(/id="data" data-chars="\d+">([^<]*)/)[1], 'base64');
}

// Makes the page that a server sends from that of a report: without data, with its server's path.
function shellOf({ file }, refresh) {
  const meta = '<meta name="heapprof-api" content="/api/v1">' +
    (refresh ? `<meta name="heapprof-refresh" content="${refresh}">` : '');
  return readFileSync(file, 'utf8')
    .replace(/data-chars="\d+">[^<]*/, 'data-chars="0">')
    .replace('base-uri', "connect-src 'self'; base-uri").replace('<title>', meta + '<title>');
}

// Starts the server. `now` is what it answers with, and may be changed.
export async function startServer(pages, now) {
  const asked = [];
  const answer = (path, query, request, response) => {
    const say = (status, words) => {
      response.statusCode = status;
      response.end(typeof words === 'string' ? words : JSON.stringify(words));
    };
    if (query.token !== 'secret') {
      say(403, { error: { what: 'The token is wrong', help: 'Use the printed address' } });
    } else if (now.broken) {
      say(400, { error: now.broken });
    } else if (path === '/api/v1/profiles') {
      const profiles = [{ name: 'a', title: 'first <b>' }, { name: 'b', title: 'second' }];
      say(200, { profiles, shown: {} });
    } else {
      const name = path === '/api/v1/subtree' ? now.part : now.page;
      const tag = `"${name}-${now.version}"`;
      response.setHeader('ETag', tag);
      if (request.headers['if-none-match'] === tag) say(304, '');
      else response.end(containerOf(pages[name]));
    }
  };
  const http = createServer((request, response) => {
    const url = new URL(request.url, 'http://localhost');
    const query = Object.fromEntries(url.searchParams);
    if (url.pathname === '/') {
      response.setHeader('Content-Type', 'text/html; charset=utf-8');
      response.end(shellOf(pages.go, query.refresh));
      return;
    }
    asked.push([url.pathname, query]);
    answer(url.pathname, query, request, response);
  });
  await new Promise(done => http.listen(0, '127.0.0.1', done));
  return {
    asked,
    address: `http://127.0.0.1:${http.address().port}/`,
    reports: () => asked.filter(([path]) => path === '/api/v1/report'),
    stop() {
      http.closeAllConnections();
      http.close();
    },
  };
}
