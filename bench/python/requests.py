# Answers requests as a web server does, without a network.
import email.utils
import functools
import hashlib
import html
import http.cookies
import io
import logging
import string
import urllib.parse

logging.basicConfig(stream=io.StringIO())
log = logging.getLogger("web")
log.setLevel(logging.INFO)
PAGE = string.Template("<html><h1>$title</h1><ul>$items</ul></html>")
routes, cache = {}, {}


class Request:
    def __init__(self, raw):
        head, _, self.body = raw.partition("\r\n\r\n")
        lines = head.split("\r\n")
        self.method, url, _ = lines[0].split(" ")
        fields = (line.partition(":") for line in lines[1:])
        self.headers = {name.lower(): value.strip() for name, _, value in fields}
        parts = urllib.parse.urlsplit(url)
        self.path, self.query = parts.path, dict(urllib.parse.parse_qsl(parts.query))
        self.cookies = http.cookies.SimpleCookie(self.headers.get("cookie", ""))


class Response:
    def __init__(self, body, status=200):
        self.body, self.status = body, status
        self.headers = {"Date": email.utils.formatdate(0), "Content-Type": "text/html"}

    def render(self):
        fields = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        return f"HTTP/1.1 {self.status} OK\r\n{fields}\r\n{self.body}".encode()


def route(path):
    def register(handler):
        @functools.wraps(handler)
        def answer(request):
            log.info("%s %s", request.method, request.path)
            response = handler(request)
            response.headers["ETag"] = hashlib.md5(response.body.encode()).hexdigest()
            return response

        routes[path] = answer
        return answer

    return register


def items(count):
    for i in range(count):
        yield "<li>%s</li>" % html.escape("item <%d>" % i)


@route("/list")
def show_list(request):
    shown = "".join(items(int(request.query.get("n", "10"))))
    return Response(PAGE.substitute(title=html.escape(request.query.get("q", "")), items=shown))


@route("/item")
def show_item(request):
    key = request.query["id"]
    if key not in cache:
        cache[key] = Response("x" * 1500 + key)
    return cache[key]


total = 0
for i in range(55000):
    target = "list?q=%%3Chello%%3E&n=%d" % (i % 20) if i % 2 else "item?id=%d" % (i % 500)
    head = f"GET /{target} HTTP/1.1\r\nHost: example.com\r\nCookie: a=b; sess={i}\r\n\r\n"
    request = Request(head)
    total += len(routes[request.path](request).render())
print(total)
