#!/usr/bin/env python3
"""Looks at the first screen that `top`, `flame`, `tui` and `report` show of profiles, without any
option, and compares them.

usage: first_screens.py [--heapprof PATH] PROFILE...

The right first row is that of `top -n 0 --format json` with the most flat bytes, of the values that
its head names. `top` and `tui` run in a terminal of 80 columns and 24 lines (tmux); the page is
opened in Chromium, and asked for its table. A line says what each shows first. Wrong are: another
first row, an empty screen, two rows of one visible name, and a line that is wrapped. The exit code
is 1 if something is wrong.
"""

import argparse, html, json, os, re, shutil, subprocess, sys, tempfile, time

LIMIT = 60  # seconds that a screen may take
COLUMNS = 80
ROWS = 24

arguments = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
arguments.add_argument("--heapprof", default="heapprof")
arguments.add_argument("--chromium", default="chromium")
arguments.add_argument("profiles", nargs="+")
a = arguments.parse_args()
heapprof = os.path.abspath(shutil.which(a.heapprof) or a.heapprof)
scratch = tempfile.TemporaryDirectory(prefix="screens-")


def run(*command):
    return subprocess.run([heapprof, *command], capture_output=True, text=True)


def tmux(*command):
    server = ["tmux", "-S", os.path.join(scratch.name, "tmux"), "-f", "/dev/null"]
    return subprocess.run([*server, *command], capture_output=True, text=True).stdout


def screen(command, done):
    """The screen of a command in a terminal, once `done` is true of it."""
    line = " ".join(f"'{word}'" for word in [heapprof, *command])
    size = ["-x", str(COLUMNS), "-y", str(ROWS)]
    tmux("new-session", "-d", "-s", "one", *size, f"PAGER= {line}; echo the-end; sleep 600")
    end = time.monotonic() + LIMIT
    while not done(text := tmux("capture-pane", "-p", "-t", "one")) and time.monotonic() < end:
        time.sleep(0.05)
    # What it has written, without the lines at which the terminal wrapped it.
    joined = tmux("capture-pane", "-p", "-J", "-S", "-", "-t", "one")
    tmux("kill-session", "-t", "one")
    wrapped = [line for line in joined.split("\n") if len(line.rstrip()) > COLUMNS]
    return joined.split("the-end")[0].rstrip(), wrapped


def same(shown, name):
    """Whether a view shows this name, whole or without pieces, which are `…` then. What tells it
    from others may follow in brackets."""
    shown = re.sub(r" \[\w+\]$", "", shown.strip("▌ ")) if not name.startswith("0x") else shown
    pieces = [re.escape(piece) for piece in shown.strip(" …").split("…")]
    visible = re.sub(r"[\0-\x1f]", lambda c: f"\\u{{{ord(c[0]):x}}}", name.replace("\t", r"\t"))
    pattern = ".*".join(pieces)
    return bool(shown.strip()) and any(
        re.search(pattern, one) or shown.startswith(one) for one in (name, visible)
    )


def doubled(names):
    return sorted({name for name in names if names.count(name) > 1})


def page_rows(profile, page):
    """Name, value and row of each row of the page's table, the first 200."""
    made = run("report", profile, "-o", page)
    if made.returncode:
        return None, made.stderr
    command = [
        a.chromium,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=8000",
    ]
    command += ["--window-size=1400,900", "--dump-dom", f"file://{page}#view=table"]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT * 3).stdout
    rows = re.findall(r"<tr[^>]*data-f=[^>]*>.*?</tr>", dom, re.S)
    found = []
    for row in rows[:200]:
        value = re.search(r'data-flat="(-?[\d.]+)"', row)
        name = re.search(r'data-name="([^"]*)"', row)
        cells = re.findall(r"<td[^>]*>(.*?)</td>", row, re.S)
        text = " | ".join(html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in cells)
        found.append((html.unescape(name[1]), float(value[1]) if value else 0.0, text))
    return found, dom


def look(profile):
    """What is shown first by each, and what is wrong."""
    wrong = []
    told = run("top", "-n", "0", "--format", "json", profile)
    if told.returncode:
        return None, [told.stderr.strip()]
    answer = json.loads(told.stdout)
    rows = [row for row in answer["rows"] if row["flat"] > 0]
    best = max(rows, key=lambda row: row["flat"], default=None)
    first = f"{best['function']} {best['flat']}" if best else "(nothing)"

    text, wrapped = screen(["top", profile], lambda text: "the-end" in text)
    wrong += [f"top: wrapped: {line}" for line in wrapped]
    lines = text.split("\n")
    head = next((n for n, line in enumerate(lines) if re.search(r"flat.*function", line)), None)
    if best and head is None:
        wrong.append(f"top: no table: {text}")
    elif best:
        body = [line for line in lines[head + 1 :] if re.match(r"\s*-?[\d.]+\S* ", line)]
        names = [re.split(r"\s{2,}", line.strip())[-1] for line in body]
        if not names or not same(names[0], best["function"]):
            wrong.append(f"top: first is {names[:1]}, not {best['function']}")
        wrong += [f"top: twice: {name}" for name in doubled(names)]
    elif not text.strip():
        wrong.append("top: empty")

    svg = run("flame", profile)
    boxes = re.findall(r"<title>(.*?)</title>", svg.stdout, re.S)
    if svg.returncode:
        # A file without a box would be no answer; the message says why there is none.
        if best or not svg.stderr.strip():
            wrong.append(f"flame: {svg.stderr.strip()}")
    elif best and not any(
        same(html.unescape(box).split("\n")[0].split(" (")[0], best["function"]) for box in boxes
    ):
        wrong.append(f"flame: no box for {best['function']} among {len(boxes)}")

    text, wrapped = screen(["tui", profile], lambda text: "FUNCTION" in text or "the-end" in text)
    wrong += [f"tui: wrapped: {line}" for line in wrapped]
    if best:
        lines = text.split("\n")
        head = next((n for n, line in enumerate(lines) if line.endswith("FUNCTION")), len(lines))
        first_row = " ".join(lines[head + 1 : head + 2])
        name = re.split(r"\d+  ?(?=\S*\D)", first_row.strip())[-1].strip()
        if "↓" not in " ".join(lines[head : head + 1]) or not same(name, best["function"]):
            wrong.append(f"tui: first is {first_row!r}, not {best['function']}\n{text}")
    elif not text.strip():
        wrong.append("tui: empty")

    page, dom = page_rows(profile, os.path.join(scratch.name, "page.html"))
    if page is None:
        wrong.append(f"report: {dom}")
    elif best and (not page or page[0][0] != best["function"] or page[0][1] != best["flat"]):
        wrong.append(f"report: first is {page[:1]}, not {first}")
    elif not best and not re.search(r"data-testid=\"empty|nothing|Nothing", dom):
        wrong.append("report: an empty page")
    if page:
        wrong += [
            f"report: twice: {name}"
            for name in doubled([" in ".join(row[2].split(" | ")[-2:]) for row in page])
        ]
    return f"{answer['sample_type']['type']}: {first}", wrong


def main():
    failed = 0
    for profile in a.profiles:
        first, wrong = look(profile)
        print(f"{os.path.basename(profile)}: {first}: {'ok' if not wrong else 'WRONG'}", flush=True)
        for one in wrong:
            failed = 1
            print(f"    {one}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
