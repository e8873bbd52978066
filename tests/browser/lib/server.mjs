// A small server in the place of `heapprof web`, for what that cannot be told to do: to fail, to be
// slow, to be busy, and to have news. It answers with the data of report pages.
import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

// Returns the data of a report page, as the page unpacks them.
function containerOf({ file }) {
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

// Starts the server. `now` is what it answers with, and may be changed: `page` is the report, and
// `version` that of its data. `slow` is how many milliseconds a report with a filter takes; such a
// report is the page `filtered`. `busy` is how often it still says 503, `retryAfter` what it adds.
export async function startServer(pages, now) {
  const asked = [];
  const answer = async (question, request, response) => {
    if (question.path === '/api/v1/profiles') {
      response.end(JSON.stringify({ profiles: [], shown: {} }));
    } else if (now.busy > 0) {
      now.busy--;
      if (now.retryAfter) response.setHeader('Retry-After', now.retryAfter);
      response.statusCode = 503;
      response.end(JSON.stringify({ error: { what: 'The server is busy' } }));
    } else {
      if (question.focus) await sleep(now.slow || 0);
      const name = question.focus ? now.filtered : now.page;
      const tag = `"${name}-${now.version}"`;
      response.setHeader('ETag', tag);
      if (request.headers['if-none-match'] === tag) response.writeHead(304).end();
      else response.end(containerOf(pages[name]));
    }
  };
  const http = createServer((request, response) => {
    const { pathname: path, searchParams } = new URL(request.url, 'http://localhost');
    const question = { path, ...Object.fromEntries(searchParams) };
    if (path === '/') {
      response.setHeader('Content-Type', 'text/html; charset=utf-8');
      response.end(shellOf(pages.go, question.refresh));
      return;
    }
    asked.push(question);
    response.on('close', () => { question.isCut = !response.writableFinished; });
    answer(question, request, response);
  });
  await new Promise(done => http.listen(0, '127.0.0.1', done));
  return {
    address: `http://127.0.0.1:${http.address().port}/?token=secret`,
    // What reports were asked for; `isCut` if the page closed the connection before its answer.
    reports: () => asked.filter(({ path }) => path === '/api/v1/report'),
    stop() {
      http.closeAllConnections();
      http.close();
    },
  };
}
