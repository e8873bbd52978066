#!/usr/bin/env python3
"""Asks `heapprof why` about sixteen real programs and situations, and compares the answers with
what is right.

usage: why_programs.py [--heapprof PATH] [--python PYTHON] [--only a,b,...] [--keep DIR]

Each program is asked about twice: by `why -- CMD`, which records it, and by `why PID`, while it has
its memory and nothing records it. What is right is in the table PROGRAMS, with the source of that
knowledge. An answer is right if each of its patterns is found in its first six lines, and if its
parts add up to its total. By PID, the total must be Rss of smaps_rollup just before or after. Exit
code and output of `why -- CMD` must be those of a bare run. --keep keeps the recordings. PYTHON
must have pandas and Flask. Prints Markdown; the exit code is 1 if an answer is not right.
"""

import argparse, dataclasses, os, re, select, shutil, signal, socket, subprocess
import sys, tempfile, time, typing, urllib.request

LIMIT = 300  # seconds that a program may take
HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20

arguments = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
arguments.add_argument("--heapprof", default="heapprof")
arguments.add_argument("--python", default=sys.executable)
arguments.add_argument("--only", default="", help="names of programs, separated by commas")
arguments.add_argument("--keep", help="a folder for the recordings")
a = arguments.parse_args()
heapprof = os.path.abspath(shutil.which(a.heapprof) or a.heapprof)
scratch = tempfile.TemporaryDirectory(prefix="why-")
work = scratch.name


def path(name):
    return os.path.join(work, name)


def source(name):
    return os.path.join(HERE, "why", name)


def compiled(compiler, name):
    built = path(os.path.basename(name).split(".")[0])
    subprocess.run([*compiler.split(), source(name), "-o", built], check=True, cwd=work)
    return [built]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(is_true):
    end = time.monotonic() + LIMIT
    while not is_true():
        if time.monotonic() > end:
            raise TimeoutError(f"{is_true.__name__}: not within {LIMIT} s")
        time.sleep(0.02)


def answers(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def get(port, page=""):
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=60).read()
    except OSError:
        return b""


def rss(pid):
    """Rss of smaps_rollup, or 0 if the process has none."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return int(re.search(r"^Rss: +(\d+)", file.read(), re.M).group(1)) * 1024
    except (OSError, AttributeError):
        return 0


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


@dataclasses.dataclass
class Program:
    name: str
    command: typing.Callable  # makes what the program works on, and says its command
    right: str  # where the knowledge of what is right comes from
    recorded: list  # patterns that `why -- CMD` must have in its first six lines
    by_pid: list  # and `why PID`
    drive: typing.Optional[typing.Callable] = None  # a server's clients: they fill its memory
    end: typing.Optional[typing.Callable] = None  # how it is ended; else by the end of its input
    asked: typing.Optional[typing.Callable] = None  # which process has the memory; else its own
    asks: str = ""  # what it reads from stdin; SECONDS is how long it shall keep its memory
    enough: int = 0  # it does not say when it is ready: asked when it has so many bytes
    output: bool = True  # its output is the same in each run


# --- what the programs work on, and their clients ---


def csv():
    with open(path("rows.csv"), "w") as file:
        file.write("id,price,name\n")
        file.writelines(f"{i},{i * 0.25},name{i % 1000}\n" for i in range(1000000))
    return path("rows.csv")


def repository():
    from random import Random

    repo, choose = path("repo"), Random(3)
    subprocess.run(["git", "init", "-q", "-b", "main", repo], check=True)
    stream = []
    for commit in range(3000):
        body = "\n".join(f"line {choose.random()}" for _ in range(300)) + "\n"
        stream.append(
            f"commit refs/heads/main\ncommitter A <a@example.org> {1700000000 + commit * 60}"
            f" +0000\ndata 2\nhi\nM 100644 inline f{commit % 40}.txt\ndata {len(body)}\n{body}\n"
        )
    text = "".join(stream)
    subprocess.run(["git", "-C", repo, "fast-import", "--quiet"], input=text, text=True, check=True)
    return repo


def templates():
    types = "".join(
        f"struct T{i} {{ std::map<std::string, std::vector<std::function<int(int)>>> by_name;\n"
        f'  int hits(const std::string &s) {{ std::regex r("t{i}[a-z]+");\n'
        f"    by_name[s].push_back([&](int x) {{ return x + {i}; }});\n"
        "    return std::regex_search(s, r) + by_name.size(); } };\n"
        for i in range(8)
    )
    calls = " + ".join(f'T{i}().hits("t{i}abc")' for i in range(8))
    with open(path("many.cpp"), "w") as file:
        file.write(
            "#include <functional>\n#include <map>\n#include <regex>\n#include <string>\n"
            f"#include <vector>\n{types}int main() {{ return ({calls}) != 16; }}\n"
        )
    compiler = subprocess.run(
        ["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True
    ).stdout.strip()
    machine = subprocess.run(["g++", "-print-multiarch"], capture_output=True, text=True).stdout
    return [compiler, "-quiet", "-imultiarch", machine.strip(), "-D_GNU_SOURCE", "-O1"] + [
        path("many.cpp"),
        "-o",
        path("many.s"),
    ]


def mapped_files():
    for number in range(4):
        with open(path(f"words{number}.idx"), "wb") as file:
            for _ in range(256):
                file.write(bytes(MIB))
    return [path(f"words{number}.idx") for number in range(4)]


# A batch job in Rust: a million names in a table.
JOB = """
use std::{collections::HashMap, io::Read};

#[inline(never)]
fn name_of(number: u64) -> String {
    format!("customer-{number:08}")
}

#[inline(never)]
fn build(count: u64) -> HashMap<u64, String> {
    let mut table = HashMap::new();
    for number in 0..count {
        table.insert(number, name_of(number));
    }
    table
}

fn main() {
    let table = build(1_000_000);
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(i32::from(table.len() != 1_000_000));
}
"""


def rust_job():
    with open(path("job.rs"), "w") as file:
        file.write(JOB)
    return compiled("rustc -g -O", path("job.rs"))


ports = {}


def with_port(name, build):
    def command():
        ports[name] = free_port()
        return build(ports[name])

    return command


def requests(name, count):
    def drive():
        until(lambda: answers(ports[name]))
        for _ in range(count):
            get(ports[name])

    return drive


def fill_redis():
    until(lambda: answers(ports["redis"]))
    rows = "".join(
        f"SET key{i} {'v' * (i % 300)}\r\nRPUSH list{i % 50} {i}\r\nHSET hash{i % 50} f{i} {i}\r\n"
        for i in range(173000)
    )
    cli = ["redis-cli", "-p", str(ports["redis"])]
    subprocess.run(cli, input=rows, stdout=subprocess.DEVNULL, text=True, check=True)


def end_redis():
    cli = ["redis-cli", "-p", str(ports["redis"]), "SHUTDOWN", "NOSAVE"]
    subprocess.run(cli, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def nginx(port):
    places = "".join(
        f"{kind}_temp_path {path(kind)}; "
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    servers = "".join(
        f"server {{ listen 127.0.0.1:{port}; server_name s{i}.example.org; root {work};"
        f" location /a {{ return 200 a; }} location /b {{ return 200 b; }} }}\n"
        for i in range(3000)
    )
    with open(path("nginx.conf"), "w") as file:
        file.write(
            f"user root; daemon off; master_process off; pid {path('nginx.pid')};\n"
            f"events {{ worker_connections 2000; }}\nhttp {{ access_log off; {places}\n"
            f"server_names_hash_max_size 65536;\n{servers} }}\n"
        )
    return ["nginx", "-c", path("nginx.conf"), "-e", path("nginx.errors")]


kept_connections = []


def connect_nginx():
    until(lambda: answers(ports["nginx"]))
    for _ in range(500):
        kept_connections.append(socket.create_connection(("127.0.0.1", ports["nginx"])))
        kept_connections[-1].send(b"GET /a HTTP/1.1\r\nHost: s1.example.org\r\n\r\n")
        kept_connections[-1].recv(1000)


def end_nginx():
    for one in kept_connections:
        one.close()
    kept_connections.clear()
    with open(path("nginx.pid")) as file:
        os.kill(int(file.read()), signal.SIGTERM)


POSTGRES = "/usr/lib/postgresql/15/bin/"


def postgres_data():
    """A database of a user without rights, in a folder of its own."""
    folder = path("pg")
    if not os.path.exists(folder):
        os.makedirs(folder)
        os.chmod(work, 0o755)
        shutil.chown(folder, "postgres", "postgres")
        as_postgres = {"user": "postgres", "group": "postgres", "cwd": folder}
        subprocess.run(
            [POSTGRES + "initdb", "-A", "trust", "-D", folder + "/data"],
            stdout=subprocess.DEVNULL,
            check=True,
            **as_postgres,
        )
    return folder + "/data"


def postgres():
    """A session without a postmaster: a server in single-user mode, as the user of its files."""
    server = [POSTGRES + "postgres", "--single", "-D", postgres_data(), "-j", "postgres"]
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *server]


QUERY = """do $$ declare kept text[]; begin
select array_agg('row number ' || i) into kept from generate_series(1, 2000000) i;
perform pg_sleep(SECONDS); end $$;

"""


# --- the programs ---

PROGRAMS = [
    Program(
        "ffmpeg with x264",
        lambda: "ffmpeg -v error -nostdin -f lavfi -i testsrc2=size=1920x1080:rate=25 -t 8"
        f" -threads 4 -c:v libx264 -bitexact -y {path('out.mp4')}".split(),
        "frames that x264 looks ahead: x264_malloc holds them (source of x264); by PID the heap",
        [r"x264_malloc"],
        [r"malloc, in use|x264"],
        enough=200 * MIB,
    ),
    Program(
        "node, 10^6 objects",
        lambda: ["node", source("objects.js")],
        "process.memoryUsage: V8's heap is three quarters of the resident memory",
        [r"V8's heap|makeObjects"],
        [r"V8's heap"],
    ),
    Program(
        "pandas, read_csv",
        lambda: [a.python, source("frame.py"), csv()],
        "tracemalloc: load, by read_csv, holds the columns",
        [r"\bload\b|read_csv|CParserWrapper\.read"],
        [r"malloc, in use|Python's objects|numpy|anonymous"],
    ),
    Program(
        "Flask, leaks a list",
        with_port("flask", lambda port: [a.python, source("leak_flask.py"), str(port)]),
        "the source: leak_one keeps 10^6 strings",
        [r"leak_one"],
        [r"Python's objects", r"objects of"],
        drive=requests("flask", 1000),
        end=lambda: get(ports["flask"], "quit"),
        output=False,
    ),
    Program(
        "Mojolicious, leaks in a hash",
        with_port(
            "mojo",
            lambda port: ["perl", source("leak_mojo.pl"), "daemon", "-l"]
            + [f"http://127.0.0.1:{port}"],
        ),
        "the source: %main::SESSIONS, filled by remember",
        [r"%main::SESSIONS|remember"],
        [r"%main::SESSIONS"],
        drive=requests("mojo", 600),
        end=lambda: get(ports["mojo"], "quit"),
        output=False,
    ),
    Program(
        "redis, 173,000 keys",
        with_port(
            "redis",
            lambda port: ["redis-server", "--port", str(port), "--save", ""]
            + ["--appendonly", "no", "--logfile", path("redis.log")],
        ),
        "INFO memory: the strings of the keys and values; all by its jemalloc",
        [r"_?sdsnewlen|dictAddRaw|dictAdd|raxNewNode|redis-server"],
        [r"jemalloc"],
        drive=fill_redis,
        end=end_redis,
    ),
    Program(
        "PostgreSQL, array_agg",
        postgres,
        "its source: accumArrayResult copies each string by pg_detoast_datum_copy; then the array",
        [r"pg_detoast_datum_copy", r"construct_md_array"],
        [r"malloc, in use"],
        asks=QUERY,
        enough=120 * MIB,
    ),
    Program(
        "nginx, 500 connections",
        with_port("nginx", nginx),
        "the pools of its configuration of 3,000 servers (ngx_cycle)",
        [r"ngx_|nginx\+0x"],
        [r"ngx_cycle|malloc, in use"],
        drive=connect_nginx,
        end=end_nginx,
    ),
    Program(
        "git log -p",
        lambda: ["git", "-C", repository(), "log", "-p"],
        "mapped packs by their size, and its delta caches",
        [r"\.pack|git"],
        [r"\.pack|malloc, in use"],
        enough=18 * MIB,
    ),
    Program(
        "cc1plus",
        templates,
        "-fmem-report: its garbage collector's pages, which it maps itself",
        [r"anonymous|GC|not recorded|cc1plus"],
        [r"anonymous|cp_global_trees|cc1plus"],
        enough=150 * MIB,
    ),
    Program(
        "a Rust job",
        rust_job,
        "the source: a table of 1,835,008 places of 32 B, and 10^6 names of 17 B",
        [r"job::build", r"name_of|job::build"],
        [r"malloc, in use"],
    ),
    Program(
        "C++ that fragments",
        lambda: compiled("g++ -g -O1", "fragment.cpp"),
        "the source: 300,000 of 600,000 blocks of 256 B are free between the others",
        [r"serve|free but kept"],
        [r"malloc, free but kept"],
    ),
    Program(
        "64 idle threads",
        lambda: compiled("gcc -g -O1 -pthread", "threads.c"),
        "the source: 64 stacks of 256 KiB touched",
        [r"stacks"],
        [r"stacks"],
    ),
    Program(
        "maps 1 GiB of files",
        lambda: compiled("gcc -g -O1", "maps.c") + mapped_files(),
        "the sizes of the files",
        [r"words\d\.idx"],
        [r"words\d\.idx"],
    ),
    Program(
        "a forked child",
        lambda: compiled("gcc -g -O1", "fork.c"),
        "the source: parent_table 100 MiB, and 20 MiB of the child's own",
        [r"parent_table 100|parent_table", r"child_rows"],
        [r"malloc, in use"],
        asked=lambda pid: children(pid)[0],
    ),
]


# --- asking ---


@dataclasses.dataclass
class Answer:
    text: str
    wrong: list  # what is not right of it; empty if all is
    held: str = ""

    def first(self):
        """The first rows: the head and the names of the largest parts and holders."""
        rows = [" ".join(line.split()) for line in self.text.split("\n")[2:5]]
        text = "; ".join(row.replace("|", "\\|") for row in rows if row)
        return re.sub(r"/\S*/", "…/", text)


SIZE = re.compile(r"([\d.]+)([KMGT]iB|B)")


def size_of(text):
    found = SIZE.match(text)
    return float(found[1]) * 1024 ** "BKMGT".index(found[2][0]) if found else None


def check(text, patterns):
    """What is not right of an answer: names that its first lines lack, parts that don't add up."""
    lines = text.split("\n")
    first = "\n".join(lines[:6])
    wrong = [
        f"{pattern} is not in its first lines"
        for pattern in patterns
        if not re.search(pattern, first)
    ]
    if len(lines) > 24:
        wrong.append(f"{len(lines)} lines")
    wrong += [f"{len(line)} columns: {line}" for line in lines if len(line) > 120]
    parts, total = [], None
    for line in lines[1:]:
        row = re.match(r" {0,10}([\d.]+[KMGT]?i?B) +(\d+%|<1%)? ", line)
        if row and row[2]:
            parts.append(size_of(row[1]))
        elif row:
            total = size_of(row[1])
            break
    if total is None or abs(sum(parts) - total) > 0.01 * total + 0.02 * MIB:
        wrong.append(f"parts of {parts} are not {total}")
    return wrong


def start(command, program, held, **more):
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=work, **more
    )
    if program.asks:
        child.stdin.write(program.asks.replace("SECONDS", "600" if held else "0"))
        child.stdin.flush()
    return child


def end(child, program):
    """Ends a program as its user would, and says its exit code and output."""
    if program.end:
        program.end()
    out, _ = child.communicate(timeout=LIMIT)
    return child.returncode, out


def whole_run(prefix, program, command, **more):
    child = start([*prefix, *command], program, False, **more)
    if program.drive:
        program.drive()
    return end(child, program)


def steady(output):
    """Output without the numbers of processes and the last line's end."""
    return re.sub(r"child \d+", "", output).rstrip()


def record(program, command):
    """`why -- CMD`, which must change neither the output nor the exit code."""
    bare = whole_run([], program, command)
    with tempfile.TemporaryFile("w+") as messages:
        told = whole_run([heapprof, "why", "--"], program, command, stderr=messages)
        messages.seek(0)
        said = messages.read()
    # The answer follows the program's own output.
    begin = re.search(
        r"(?<=> )postgres: |^(?!backend)\S.*: (?=[\d.]+[KMGT]?i?B resident)", told[1], re.M
    )
    if not begin:
        return Answer(told[1], [f"no answer: {said.strip()[-300:]}"])
    own, text = told[1][: begin.start()], told[1][begin.start() :]
    wrong = check(text.rstrip(), program.recorded)
    if told[0] != bare[0]:
        wrong.append(f"exit code {told[0]} instead of {bare[0]}: {said.strip()[-300:]}")
    if program.output and steady(own) != steady(bare[1]):
        wrong.append("other output")
    return Answer(text, wrong)


def readable(file):
    return bool(select.select([file], [], [], 0)[0])


def is_ready(child, program):
    if program.drive:
        program.drive()
    elif program.enough:
        # What it prints is taken until then; it waits for a reader afterwards.
        os.set_blocking(child.stdout.fileno(), False)

        def has_enough():
            os.read(child.stdout.fileno(), 1 << 16) if readable(child.stdout) else None
            return rss(child.pid) >= program.enough or child.poll() is not None

        until(has_enough)
        if program.asks:
            # Its question is answered when its memory stays as it is.
            sizes = []

            def rests():
                time.sleep(0.1)
                sizes.append(rss(child.pid))
                return len(sizes) > 20 and len(set(sizes[-20:])) == 1

            until(rests)
    else:
        while line := child.stdout.readline():
            if line == "ready\n":
                break


def ask(program, command):
    """`why PID` of a process that nothing records, while it has its memory."""
    child = start(command, program, True)
    is_ready(child, program)
    pid = program.asked(child.pid) if program.asked else child.pid
    # A program that goes on may have grown meanwhile.
    before = rss(pid)
    why = subprocess.run([heapprof, "why", str(pid)], capture_output=True, text=True)
    after = rss(pid)
    if program.enough:
        child.kill()
        child.wait()
    else:
        end(child, program)
    wrong = check(why.stdout.rstrip(), program.by_pid)
    if why.returncode:
        wrong.append(f"exit code {why.returncode}: {why.stderr.strip()[-300:]}")
    total = re.search(r": ([\d.]+[KMGT]?i?B) resident", why.stdout)
    slack = 0.01 * max(before, after)
    if (
        not total
        or not min(before, after) - slack <= size_of(total[1]) <= max(before, after) + slack
    ):
        wrong.append(f"Rss is {before} to {after}")
    held = re.search(r"suspended for ([\d.]+ m?s)", why.stdout)
    return Answer(why.stdout, wrong, held[1] if held else "")


def core_file(program, command):
    """The core file of the C++ program, beside its own pages."""
    core = path("fragment.core")
    child = start(command, program, True)
    is_ready(child, program)
    subprocess.run(
        ["gdb", "-p", str(child.pid), "-batch", "-ex", f"generate-core-file {core}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    end(child, program)
    why = subprocess.run([heapprof, "why", f"core:{core}"], capture_output=True, text=True)
    return Answer(why.stdout, check(why.stdout.rstrip(), program.by_pid))


def main():
    only = {name for name in a.only.split(",") if name}
    failed = 0
    print("| program | what is right | recorded | by PID | suspended for |")
    print("| :--- | :--- | :--- | :--- | ---: |")
    for program in PROGRAMS:
        if only and not any(name in program.name for name in only):
            continue
        command = program.command()
        told = [record(program, command), ask(program, command)]
        print(
            f"| {program.name} | {program.right} | {told[0].first()} | {told[1].first()} |", end=""
        )
        print(f" {told[1].held} |", flush=True)
        if program.name == "C++ that fragments":
            told.append(core_file(program, command))
            print(f"| its core file | the same | | {told[2].first()} | |", flush=True)
        for answer in told:
            for wrong in answer.wrong:
                failed = 1
                print(f"{program.name}: {wrong}\n{answer.text}", file=sys.stderr, flush=True)
        if a.keep:
            os.makedirs(a.keep, exist_ok=True)
            recorded = os.path.join(a.keep, re.sub(r"\W+", "-", program.name) + ".pb.gz")
            whole_run([heapprof, "record", "-o", recorded, "--"], program, command)
    return failed


if __name__ == "__main__":
    sys.exit(main())
