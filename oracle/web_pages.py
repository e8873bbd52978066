#!/usr/bin/env python3
"""Serves the same profile with the real `pprof -http` and with `heapprof pprof -http`, asks both
for the same URLs, and compares the numbers on their pages.

usage: web_pages.py --pprof PATH --heapprof PATH [--only REGEX] [--chromium PATH] [PROFILE...] A case is
URL x PROFILE; without PROFILE, five of sample-profiles/valid are served. The numbers of pprof are
read from the data in its pages, with the arithmetic of its scripts. With --chromium, they are also
read from what this browser draws of both pages. Afterwards, both servers save and delete the same
configurations, and their settings files are compared. Prints each mismatch with the first
difference, then the closing line `N passed, N failed`. Exit 1 on any failure. Servers listen on
free ports of 127.0.0.1, TZ is UTC, and -symbolize=none keeps both from reading binaries.
"""

import argparse, gzip, html, itertools, json, os, re, shutil, signal, socket
import subprocess, sys, tempfile, time, urllib.error, urllib.parse, urllib.request
from decimal import ROUND_HALF_UP, Decimal

URLS = [
    "top",
    "top?f=pars|put|walk|main",
    "top?i=pars|put|walk",
    "top?h=pars|put|walk",
    "top?s=pars|put|walk|main",
    "top?sf=pars|put|main",
    "top?prunefrom=pars|put",
    "top?f=main&n=20&si=0",
    "top?si=1",
    "top?sort=cum",
    "top?nf=0.1",
    "top?trim=f",
    "top?g=lines",
    "top?g=files&trim=f",
    "top?g=filefunctions",
    "top?g=addresses&trim=f",
    "top?noinlines=t",
    "top?unit=kb",
    "top?unit=auto&compact=t",
    "top?rel=t&f=pars|put|walk|main",
    "top?mean=t",
    "top?dropneg=t",
    "top?tf=:4kb",
    "top?ti=1kb:",
    "top?ts=bytes&th=request",
    "top?f=nobody",
    "top?f=(",
    "top?n=x",
    "flamegraph",
    "flamegraph?f=pars|put|walk|main",
    "flamegraph?g=lines&si=0",
    "flamegraph?h=runtime&i=pars",
    "flamegraph?p=pars|put|walk|main",
    "flamegraph?g=files",
    "peek?f=main",
    "peek?f=pars|put|walk&sort=cum&unit=kb",
    "peek?f=nobody",
    "source?f=pars|put|walk|main",
    "source?f=nobody",
    "source?f=main&si=0&unit=kb",
    "disasm?f=nobody",
    "disasm?f=main",
    "disasm?f=pars|put|walk&intel=t",
    "download",
    "?f=main",
]
PROFILES = ["go.leaky.after", "c.waves", "made.inlines", "made.negative", "go.leaky.contention"]
# The narrowest box that heapprof draws, as a share of the whole width.
LEAST = 1 / 1200


def fetch(address, data=None):
    """The status, the text and the last address of a page."""
    headers = {"Content-Type": "application/json"} if data is not None else {}
    try:
        request = urllib.request.Request(address, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.read(), reply.url
    except urllib.error.HTTPError as error:
        return error.code, error.read(), address


class Server:
    """A server that shows one profile. `address` makes the address of a page."""

    def __init__(self, command, home, port=None):
        env = dict(os.environ, TZ="UTC", XDG_CONFIG_HOME=home, PPROF_TMPDIR=home, NO_PROXY="*")
        self.log = tempfile.TemporaryFile("w+")
        self.child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=self.log)
        self.home, self.token = home, None
        if port:
            self.root = f"http://127.0.0.1:{port}/ui/"
            self.wait(port)
        else:
            url = urllib.parse.urlsplit(self.child.stdout.readline().decode().strip())
            if not url.netloc:
                raise SystemExit(f"heapprof: {self.said()}")
            self.root = f"http://{url.netloc}/"
            self.token = urllib.parse.parse_qs(url.query)["token"][0]

    def wait(self, port):
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port)).close()
            except ConnectionRefusedError:
                if self.child.poll() is not None:
                    raise SystemExit(f"pprof: {self.said()}")
                time.sleep(0.05)

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def address(self, path):
        path, _, query = path.partition("?")
        pairs = urllib.parse.parse_qsl(query, keep_blank_values=True)
        pairs = [("token", self.token)] * bool(self.token) + pairs
        return self.root + path + ("?" + urllib.parse.urlencode(pairs) if pairs else "")

    def stop(self):
        self.child.send_signal(signal.SIGTERM)
        self.child.wait()


def fixed(value, decimals):
    """JavaScript's toFixed."""
    step = Decimal(1).scaleb(-decimals)
    return str(Decimal(value).quantize(step, ROUND_HALF_UP))


def short(value, decimals):
    text = fixed(value, decimals)
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def percent(value, total):
    return fixed(value * 100.0 / total if total else 0.0, 2) + "%"


def pprof_rows(page):
    """The rows of pprof's /top, as its script sorts and writes them."""
    found = re.search(r"makeTopTable\(\s*(-?\d+)\s*,\s*(\[.*?\]|null)\s*\);\s*\n", page, re.S)
    total, entries = int(found[1]), json.loads(found[2]) or []
    entries = sorted(entries, key=lambda entry: entry["Flat"])[::-1]
    rows, so_far = [], 0
    for entry in entries:
        so_far += entry["Flat"]
        flat, sum_, cum = (percent(n, total) for n in (entry["Flat"], so_far, entry["Cum"]))
        name, label = entry["Name"], entry["InlineLabel"]
        rows.append([entry["FlatFormat"], flat, sum_, entry["CumFormat"], cum, name, label])
    return rows


def table_rows(page):
    """The cells of each row of a table."""
    rows = re.findall(r"<tr[^>]*>\s*<td.*?</tr>", page, re.S)
    cells = (re.findall(r"<td[^>]*>(.*?)</td>", row, re.S) for row in rows)
    return [[html.unescape(cell) for cell in row] for row in cells]


def compare_rows(want, got, sort):
    """The first difference of the rows of /top. Rows of the same value may be in any order."""
    without_sum = lambda rows: sorted(row[:2] + row[3:] for row in rows)
    for one, other in itertools.zip_longest(without_sum(want), without_sum(got)):
        if one != other:
            return one, other
    # pprof's page is sorted by flat until a user clicks on Cum.
    if sort != "cum":
        for one, other in itertools.zip_longest(want, got):
            if one[:3] != other[:3]:
                return one, other


def boxes_of_pprof(page, pivot):
    """The boxes that the script of pprof's flame graph makes."""
    data = json.loads(re.search(r"stackViewer\((\{.*\}), \[", page)[1])
    units = json.loads(re.search(r"pprofUnitDefs = (\[.*?\]);\n", page, re.S)[1])
    stacks, sources = data["Stacks"], data["Sources"]
    is_diff = any(stack["Value"] < 0 for stack in stacks)
    pivots = [
        i
        for i, source in enumerate(sources)
        if pivot and any(re.search(pivot, source[key]) for key in ("UniqueName", "FileName"))
    ]
    places = {}
    for i in pivots or [0]:
        for place in sources[i]["Places"]:
            stack, pos = place["Stack"], place["Pos"]
            places[stack] = min(pos, places.get(stack, pos))

    def unit_text(value):
        size, unit = abs(value * data["Scale"]), data["Unit"]
        for family in units:
            if family["DefaultUnit"]["CanonicalName"] == unit:
                size *= family["DefaultUnit"]["Factor"]
                known = family["Units"]
                fits = [u for u in known[1:] if u["Factor"] <= size]
                best = fits[-1] if fits else known[0]
                size, unit = size / best["Factor"], best["CanonicalName"]
                break
        return ("-" if value < 0 else "") + short(size, 2) + unit

    def percent_text(value):
        share = 100.0 * value / data["Total"] if data["Total"] else 0.0
        return f"{unit_text(value)} ({short(share, 1)}%)"

    def details(pos, neg, own):
        text = percent_text(pos - neg)
        if own:
            text += " │ self " + unit_text(own)
        if is_diff and pos > 0 and neg > 0:
            text += f" │ {percent_text(neg)} → {percent_text(pos)}"
        return text

    total = sum(abs(stacks[stack]["Value"]) for stack in places)
    found = []

    def draw(places, depth, direction):
        groups = {}
        for stack, pos in places:
            groups.setdefault(stacks[stack]["Sources"][pos], []).append((stack, pos))
        size = lambda group: sum(abs(stacks[stack]["Value"]) for stack, _ in group)
        for source, group in sorted(groups.items(), key=lambda item: -size(item[1])):
            width = size(group) / total if total else 0
            if width < LEAST:
                continue
            values = [(stacks[s]["Value"], p + 1 == len(stacks[s]["Sources"])) for s, p in group]
            pos = sum(v for v, _ in values if v > 0)
            neg = -sum(v for v, _ in values if v < 0)
            own = sum(v for v, is_leaf in values if is_leaf)
            known = sources[source]
            name = known["FullName"] + (" (inlined)" if known["Inlined"] else "")
            if depth or direction > 0:
                text = details(pos, neg, own)
                found.append((direction * depth, name, text, width))
            nearer = [(s, p + direction) for s, p in group]
            inside = [(s, p) for s, p in nearer if 0 <= p < len(stacks[s]["Sources"])]
            draw(inside, depth + 1, direction)

    sys.setrecursionlimit(100_000)
    draw(list(places.items()), 0, 1)
    draw(list(places.items()), 0, -1)
    return sorted(found)


def boxes_of_heapprof(page):
    found = []
    pattern = (
        r'<title>(.*?) │ ([^│]*?)</title>'
        r'<rect x="[^"]*" y="[^"]*" width="([\d.]+)"[^>]*?data-row="(-?\d+)"'
    )
    # The page's own title comes before the drawing.
    drawing = page.partition("<svg")[2]
    for text, name, width, row in re.findall(pattern, drawing, re.S):
        text, name = html.unescape(text), html.unescape(name)
        if text.endswith(" (inlined)"):
            text, name = text[: -len(" (inlined)")], name + " (inlined)"
        found.append((int(row), name, text, float(width) / 1200))
    return sorted(found)


def compare_boxes(want, got):
    """The first difference of two flame graphs. Widths are written with some digits only."""
    for one, other in itertools.zip_longest(want, got):
        if not one or not other or one[:3] != other[:3] or abs(one[3] - other[3]) > 1e-5:
            return one, other


def text_of(page):
    """The text of a page, without blanks around it."""
    found = re.search(r"<pre[^>]*>(.*?)</pre>", page, re.S)
    return html.unescape(found[1]).strip()


def source_rows(page):
    """The words of each line of a listing, from pprof's or heapprof's page: functions, sums, lines,
    instructions."""
    page = re.sub(r"(?s)<(script|style).*?</\1>", "", page)
    found = re.findall(r"(?s)<h2>.*?(?:</pre>|</section>)", page)
    text = re.sub(r"</?(h2|p|div|pre|summary|details|section)\b[^>]*>", "\n", "\n".join(found))
    text = re.sub(r"<span class=\"?asm\"?>", "\n", text)
    text = html.unescape(html.unescape(re.sub(r"<[^>]*>", "", text)))
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def first_difference(want, got):
    for one, other in itertools.zip_longest(want, got):
        if one != other:
            return one, other


def compare(path, pprof, heapprof):
    """The first difference of the two answers to a path, or nothing."""
    (status, want, url), (own_status, got, own_url) = (
        fetch(server.address(path)) for server in (pprof, heapprof)
    )
    if status != own_status:
        return f"status {status}", f"status {own_status} {got[:200]}"
    if status != 200:
        return None
    view, _, query = path.partition("?")
    query = dict(urllib.parse.parse_qsl(query))
    if view == "download":
        return first_difference([gzip.decompress(want)], [gzip.decompress(got)])
    want, got = want.decode(), got.decode()
    if view == "top":
        return compare_rows(pprof_rows(want), table_rows(got), query.get("sort"))
    if view in ("flamegraph", ""):
        names = [urllib.parse.urlsplit(u).path.split("/")[-1] for u in (url, own_url)]
        if names != ["flamegraph", "flamegraph"]:
            return tuple(names)
        boxes = boxes_of_pprof(want, query.get("p"))
        return compare_boxes(boxes, boxes_of_heapprof(got))
    if view == "source":
        # The order of files with the same flat is not defined.
        return first_difference(sorted(source_rows(want)), sorted(source_rows(got)))
    return first_difference(text_of(want).splitlines(), text_of(got).splitlines())


def config_links(page):
    """The parameters of the link to each configuration."""
    links = re.findall(r'href="([^"]*)"[^>]*>(?:\s|<span[^<]*</span>)*(Default|one|two)\s*<', page)
    found = {}
    for href, name in links:
        query = urllib.parse.urlsplit(html.unescape(href)).query
        pairs = urllib.parse.parse_qsl(query)
        found[name] = sorted(pair for pair in pairs if pair[0] != "token")
    return found


def compare_settings(pprof, heapprof):
    """The differences of the settings files after the same changes, one for each change."""
    changes = [
        "saveconfig?config=one&f=a|b<c&n=7&si=0&trim=f",
        "saveconfig?config=two&sort=cum&nf=1e-7&ef=1000000&g=lines&mean=t&unit=kb",
        "saveconfig?config=one&h=é\u2028",
        "deleteconfig?config=none",
        "deleteconfig?config=one",
        "deleteconfig?config=two",
    ]
    for change in changes:
        asked = [fetch(server.address(change), b"")[0] for server in (pprof, heapprof)]
        contents, links = [], []
        for server in (pprof, heapprof):
            with open(os.path.join(server.home, "pprof/settings.json"), "rb") as file:
                contents.append(file.read())
            links.append(config_links(fetch(server.address("top?f=x&nf=0.1"))[1].decode()))
        same = asked[0] == asked[1] and contents[0] == contents[1] and links[0] == links[1]
        yield change, None if same else (
            (asked[0], contents[0], links[0]),
            (asked[1], contents[1], links[1]),
        )


def drawn(chromium, address):
    """What the browser makes of a page."""
    folder = tempfile.mkdtemp()
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"]
    command += ["--virtual-time-budget=8000", "--window-size=1400,900", "--dump-dom", address]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    finally:
        shutil.rmtree(folder)


def compare_drawn(path, chromium, pprof, heapprof):
    """The first difference of what the browser shows of the two pages."""
    want, got = (drawn(chromium, server.address(path)) for server in (pprof, heapprof))
    view, _, query = path.partition("?")
    if view == "top":
        sort = dict(urllib.parse.parse_qsl(query)).get("sort")
        return compare_rows(table_rows(want), table_rows(got), sort)
    if view == "source":
        return first_difference(sorted(source_rows(want)), sorted(source_rows(got)))
    if view in ("peek", "disasm"):
        return first_difference(text_of(want).splitlines(), text_of(got).splitlines())
    # The boxes as they are drawn: the row and the width. pprof's page leaves a pixel between boxes,
    # and boxes of less than four pixels out. Heapprof's page is 1200 units wide.
    boxes = re.findall(
        r'<div class="boxbg[^"]*" style="left: [\d.]+px; top: (\d+)px; width: ([\d.]+)px', want
    )
    rects = re.findall(r'<rect x="[^"]*" y="(\d+)" width="([\d.]+)"[^>]*data-name', got)
    whole = max((float(width) + 1 for _, width in boxes), default=1)
    theirs = drawn_rows([(int(top), (float(width) + 1) / whole) for top, width in boxes], whole)
    ours = drawn_rows([(int(y), float(width) / 1200) for y, width in rects], whole)
    for one, other in itertools.zip_longest(theirs, ours):
        if not one or not other or one[0] != other[0] or abs(one[1] - other[1]) > 1e-3:
            return one, other


def drawn_rows(boxes, pixels):
    """The number of the row and the width of each box that is wide enough for both pages."""
    rows = sorted({row for row, _ in boxes})
    return sorted((rows.index(row), width) for row, width in boxes if width > 5 / pixels)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pprof", required=True)
    ap.add_argument("--heapprof", required=True)
    ap.add_argument("--only", default=".")
    ap.add_argument("--chromium")
    ap.add_argument("profiles", nargs="*")
    a = ap.parse_args()
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../sample-profiles/valid")
    files = a.profiles or [os.path.join(here, f"{name}.pb.gz") for name in PROFILES]
    good = bad = 0

    def count(name, difference):
        nonlocal good, bad
        good += difference is None
        bad += difference is not None
        if difference is not None:
            print(f"MISMATCH {name}\n  pprof    {difference[0]}\n  heapprof {difference[1]}")

    with tempfile.TemporaryDirectory() as folder:
        for number, file in enumerate(files):
            homes = [os.path.join(folder, f"{number}-{name}") for name in ("pprof", "heapprof")]
            for home in homes:
                os.mkdir(home)
            port, common = free_port(), ["-no_browser", "-symbolize=none", file]
            pprof = Server([a.pprof, f"-http=127.0.0.1:{port}", *common], homes[0], port)
            heapprof = Server([a.heapprof, "pprof", "-http=127.0.0.1:", *common], homes[1])
            try:
                for path in URLS:
                    name = f"/{path} {os.path.basename(file)}"
                    if not re.search(a.only, name):
                        continue
                    count(name, compare(path, pprof, heapprof))
                    plain = not re.search(r"^download|^\?|nobody|\(|=x", path)
                    if a.chromium and plain and fetch(pprof.address(path))[0] == 200:
                        difference = compare_drawn(path, a.chromium, pprof, heapprof)
                        count(f"Chromium {name}", difference)
                for change, difference in compare_settings(pprof, heapprof):
                    if re.search(a.only, change):
                        count(f"{change} {os.path.basename(file)}", difference)
            finally:
                pprof.stop()
                heapprof.stop()
    print(f"{good} passed, {bad} failed")
    sys.exit(bad > 0)


main()
