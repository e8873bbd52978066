#!/usr/bin/env python3
"""Exports a fleet to two object stores that this file plays, and compares what is read from them.

usage: oracle/object_stores.py HEAPPROF FLEET

The binary must have the feature object-store; with datafusion, --from asks DataFusion. FLEET is a
folder of profiles, such as sample-profiles/fleet. One store speaks S3's protocol and checks the
signature of each request; the other is an HTTP server with WebDAV that checks a password. Both
refuse one request of each kind once with 503. Then an export is cut off in the middle of a batch:
nothing of the batch may be read, and the next export must complete it.
"""

import base64
import hashlib
import hmac
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import xml.sax.saxutils
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HEAPPROF, FLEET = sys.argv[1:]
KEY, SECRET, REGION = "AKIDPLAYED", "secret/of+the+double", "eu-north-1"
USER, PASSWORD = "me", "pass:word"
QUESTIONS = [
    ["series"],
    ["top", "--all-code", "-n", "0", "service~s"],
    ["growth", "-n", "0", "service=shop"],
    ["diff", "--all-code", "-n", "20", "service=shop,until=2026-11-20T09:05:00Z", "service=shop"],
]


class Double(BaseHTTPRequestHandler):
    """What both stores have: objects by name, ranges, and a refusal of each kind of request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do(self):
        server = self.server
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        path, _, query = self.path.partition("?")
        why = self.refused(path, query, body)
        if why:
            return self.answer(403, why.encode())
        server.seen[self.command] = server.seen.get(self.command, 0) + 1
        if self.command not in server.was_busy:
            server.was_busy.add(self.command)
            return self.answer(503)
        if self.command == "PUT" and server.puts_left is not None:
            server.puts_left -= 1
            if server.puts_left < 0:
                return self.answer(400, b"no more for now")
        name = urllib.parse.unquote(path).lstrip("/")
        if self.command == "PUT":
            return self.put(name, body)
        if self.command in ("GET", "HEAD") and not query:
            return self.get(name)
        self.list(name, urllib.parse.parse_qs(query, keep_blank_values=True))

    do_GET = do_HEAD = do_PUT = do_PROPFIND = do_MKCOL = do

    def put(self, name, body):
        self.server.objects[name] = body
        self.answer(200, ETag='"%s"' % hashlib.md5(body).hexdigest())

    def get(self, name):
        body = self.server.objects.get(name)
        if body is None:
            return self.answer(404, b"there is no such object")
        more = {
            "ETag": '"%s"' % hashlib.md5(body).hexdigest(),
            "Last_Modified": "Fri, 20 Nov 2026 10:00:00 GMT",
        }
        part = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if self.command == "HEAD":
            return self.answer(200, Content_Length=str(len(body)), **more)
        if not part:
            return self.answer(200, body, **more)
        first, last = part.groups()
        if not first:
            first, last = max(0, len(body) - int(last)), len(body) - 1
        first, last = int(first), min(int(last or len(body)), len(body) - 1)
        more["Content_Range"] = f"bytes {first}-{last}/{len(body)}"
        self.answer(206, body[first : last + 1], **more)


class S3(Double):
    """A bucket: /BUCKET/KEY. Lists have two entries a page."""

    def refused(self, path, query, body):
        """Why the signature is wrong, by AWS's "Signature Version 4"."""
        found = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/([^/]+)/s3/aws4_request, "
            r"SignedHeaders=([^,]+), Signature=(\w+)",
            self.headers.get("Authorization", ""),
        )
        if not found:
            return "a signature is missing"
        key, day, region, signed, signature = found.groups()
        content = self.headers["x-amz-content-sha256"]
        if content != "UNSIGNED-PAYLOAD" and content != hashlib.sha256(body).hexdigest():
            return "the body is another one"
        pairs = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
        quoted = [[urllib.parse.quote(t, safe="-_.~") for t in pair] for pair in pairs]
        headers = "".join(f"{n}:{self.headers[n].strip()}\n" for n in signed.split(";"))
        request = "\n".join(
            [self.command, path, "&".join("=".join(q) for q in quoted), headers, signed, content]
        )
        scope = f"{day}/{region}/s3/aws4_request"
        text = "\n".join(
            [
                "AWS4-HMAC-SHA256",
                self.headers["x-amz-date"],
                scope,
                hashlib.sha256(request.encode()).hexdigest(),
            ]
        )
        by = f"AWS4{SECRET}".encode()
        for word in (day, region, "s3", "aws4_request"):
            by = hmac.new(by, word.encode(), hashlib.sha256).digest()
        expected = hmac.new(by, text.encode(), hashlib.sha256).hexdigest()
        is_right = (key, region, signature) == (KEY, REGION, expected)
        return "" if is_right else "the signature is wrong"

    def list(self, bucket, query):
        assert query["list-type"] == ["2"] and query["delimiter"] == ["/"], query
        prefix = query["prefix"][0]
        after = query.get("continuation-token", [""])[0]
        below = [n[len(bucket) + 1 :] for n in sorted(self.server.objects)]
        below = [n[len(prefix) :] for n in below if n.startswith(prefix)]
        entries = sorted({n.partition("/")[0] + "/" * ("/" in n) for n in below})
        entries = [entry for entry in entries if entry > after]
        page, rest = entries[:2], entries[2:]
        xml_ = "<ListBucketResult>"
        for entry in page:
            whole = xml.sax.saxutils.escape(prefix + entry)
            if entry.endswith("/"):
                xml_ += f"<CommonPrefixes><Prefix>{whole}</Prefix></CommonPrefixes>"
            else:
                xml_ += (
                    f"<Contents><Key>{whole}</Key><Size>1</Size>"
                    "<LastModified>2026-11-20T10:00:00.000Z</LastModified></Contents>"
                )
        if rest:
            xml_ += f"<NextContinuationToken>{page[-1]}</NextContinuationToken>"
        self.answer(200, (xml_ + "</ListBucketResult>").encode())


class WebDav(Double):
    """A server with folders, which must be made before something is put into them."""

    def refused(self, path, query, body):
        both = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        return "" if self.headers.get("Authorization") == f"Basic {both}" else "who asks?"

    def put(self, name, body):
        if name.rpartition("/")[0] not in self.server.folders:
            return self.answer(409)
        super().put(name, body)

    def list(self, name, _):
        folders = self.server.folders
        if self.command == "MKCOL":
            if name.rpartition("/")[0] not in folders:
                return self.answer(409)
            folders.add(name)
            return self.answer(201)
        name = name.rstrip("/")
        if name not in folders:
            return self.answer(404)
        assert self.headers["Depth"] == "1"
        inside = [f for f in folders if f == name or f.rpartition("/")[0] == name]
        inside = [(f"{f}/", "<collection/>") for f in inside]
        files = [n for n in self.server.objects if n.rpartition("/")[0] == name]
        xml_ = '<multistatus xmlns="DAV:">'
        for path, kind in inside + [(n, "") for n in files]:
            xml_ += (
                f"<response><href>/{urllib.parse.quote(path)}</href><propstat><prop>"
                "<getlastmodified>Fri, 20 Nov 2026 10:00:00 GMT</getlastmodified>"
                f"<getcontentlength>1</getcontentlength><resourcetype>{kind}</resourcetype>"
                "</prop><status>HTTP/1.1 200 OK</status></propstat></response>"
            )
        self.answer(207, (xml_ + "</multistatus>").encode())


def serve(kind):
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    server.objects, server.folders, server.seen = {}, {""}, {}
    server.was_busy, server.puts_left = set(), None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}"


def heapprof(*words, env={}, code=0):
    done = subprocess.run(
        [HEAPPROF, *words], capture_output=True, text=True, env=os.environ | env
    )
    if done.returncode != code:
        raise SystemExit(f"{' '.join(words)}: {done.returncode}: {done.stderr}")
    return done.stdout if code == 0 else done.stderr


def answers(store, env={}, questions=QUESTIONS):
    """The answers to questions, without the name of the store."""
    texts = [heapprof(*store, *words, "-f", "json", env=env) for words in questions]
    reports = [json.loads(text) for text in texts]
    return [report["rows"] if isinstance(report, dict) else report for report in reports]


def main():
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "http_proxy", "HTTP_PROXY"):
        os.environ.pop(name, None)
    work = tempfile.TemporaryDirectory()
    db = f"{work.name}/fleet.db"
    heapprof("--db", db, "load", FLEET)
    expected = answers(["--db", db])
    assert all(expected), "a question without rows says nothing"
    for kind in (S3, WebDav):
        server, url = serve(kind)
        if kind is S3:
            place = "s3://bucket/heap/fleet"
            env = {
                "AWS_ACCESS_KEY_ID": KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_REGION": REGION,
                "AWS_ENDPOINT_URL": url,
                "AWS_ALLOW_HTTP": "true",
            }
            wrong = env | {"AWS_SECRET_ACCESS_KEY": "another"}
        else:
            place = f"{url}/heap/fleet"
            env = {"HEAPPROF_STORE_USER": USER, "HEAPPROF_STORE_PASSWORD": PASSWORD}
            wrong = env | {"HEAPPROF_STORE_PASSWORD": "another"}
        export = ["--db", db, "export", "--parquet", place, "--batch", "20"]
        said = heapprof("--from", place, "series", env=wrong, code=2)
        assert "403" in said and said.count("\n") == 1, said
        assert "another" not in said and "AKID" not in said, said
        said = heapprof("--from", place, "series", env=env, code=2)
        assert "has no profiles" in said, said
        said = heapprof(*export, "--file-mode", "644", env=env, code=2)
        assert "no effect" in said and not server.objects, said

        # An export is cut off in its second batch.
        server.puts_left = 25
        said = heapprof(*export, env=env, code=2)
        assert "cannot be written" in said and said.count("\n") == 1, said
        marks = [n for n in server.objects if n.endswith("/profile.parquet")]
        folders = {n.rpartition("/")[0] for n in server.objects}
        assert (len(marks), len(folders)) == (1, 2), (marks, folders)
        seen = [t for row in answers(["--from", place], env, QUESTIONS[:1])[0] for t in row["totals"]]
        everything = [total for row in expected[0] for total in row["totals"]]
        assert 0 < len(seen) < len(everything) and set(seen) < set(everything), seen
        server.puts_left = None
        heapprof(*export, env=env)
        count = server.seen["PUT"]
        assert answers(["--from", place], env) == expected
        # A second export finds all there.
        heapprof(*export, env=env)
        assert server.seen["PUT"] == count, "something was written twice"
        again = f"{work.name}/{kind.__name__}.db"
        heapprof("--db", again, "import", place, env=env)
        assert answers(["--db", again]) == expected
        server.shutdown()
        server.server_close()
        said = heapprof("--from", place, "series", env=env, code=2)
        assert "cannot be read" in said and said.count("\n") == 1, said
        batches = len({n.rpartition("/")[0] for n in server.objects})
        print(f"{kind.__name__}: {batches} batches, {server.seen}")


main()
