#!/usr/bin/env python3
"""Runs real, unmodified programs bare, under `heapprof record` and under `record --exact`, and says
whether they noticed.

usage: real_programs.py [--heapprof PATH] [--runs 3] [--only a,b,...]

Exit code and output (stdout; a server's answers; files written) must be those of the first bare
run, every time. One run a mode is symbolized and gives totals and names; N more (--no-symbolize,
interleaved with bare ones) give the CPU ratio, the median of the paired ratios: of all that the
program starts and waits for, clients of a server left out. Where a program is many processes the
totals are sums over their profiles, so peak_space is the sum of their peaks. Without --heapprof
there are only bare runs: do they repeat, and how long do they take? Prints Markdown; exit code 1
where something differs or left no profile.
"""

import argparse, dataclasses, glob, hashlib, http.client, json, os, random, re, shutil, signal, socket, statistics
import subprocess, sys, tempfile, threading, time, typing

ap = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
ap.add_argument("--heapprof")
ap.add_argument("--runs", type=int, default=3)
ap.add_argument("--only", default="", help="names of programs, separated by commas")
a = ap.parse_args()
if a.heapprof:
    a.heapprof = os.path.abspath(shutil.which(a.heapprof) or a.heapprof)
LIMIT = 600  # seconds a run may take
scratch = tempfile.TemporaryDirectory(prefix="real-")  # short: sockets are made in it
work = scratch.name


def path(name):
    return os.path.join(work, name)


def write(name, text):
    with open(path(name), "w") as f:
        f.write(text)
    return path(name)


def text_of(*cmd):
    """What a helper prints, both ways: versions come on either."""
    return subprocess.run(
        cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
    ).stdout.strip()


# --- what the programs work on ---


def words(count):
    choose = random.Random(7)
    return "".join(
        choose.choice(
            ("heap", "stack", "leaf", "root", "block", "peak", "byte", str(choose.randrange(9999)))
        )
        + " \n"[i % 12 == 0]
        for i in range(count)
    )


def cpp():
    types = "".join(
        f"struct T{i} {{ std::map<std::string, std::vector<std::function<int(int)>>> by_name; int"
        " hits(const std::string &s) {\n"
        f'  std::regex r("t{i}[a-z]+"); by_name[s].push_back([&](int x) {{ return x + {i}; }});'
        " return std::regex_search(s, r) + by_name.size(); } };\n"
        for i in range(4)
    )
    calls = " + ".join(f'T{i}().hits("t{i}abc")' for i in range(4))
    return write(
        "many.cpp",
        "#include <functional>\n#include <map>\n#include <regex>\n#include <string>\n#include"
        f" <vector>\n{types}int main() {{ return ({calls}) != 8; }}\n",
    )


def repository():
    """600 commits to 40 files, with fixed names and times, so that every run logs the same."""
    repo, choose, blobs = path("repo"), random.Random(3), {}
    stream = []
    for commit in range(600):
        stream.append(
            f"commit refs/heads/main\ncommitter A <a@example.org> {1700000000 + commit * 60}"
            f" +0000\ndata 9\ncommit {commit % 100:02d}\n"
        )
        for _ in range(4):
            name = f"file{choose.randrange(40)}.txt"
            lines = blobs.setdefault(name, [f"line {i} of {name}" for i in range(300)])
            for _ in range(5):
                lines[choose.randrange(300)] = f"changed in {commit}: {choose.random()}"
            body = "\n".join(lines) + "\n"
            stream.append(f"M 100644 inline {name}\ndata {len(body)}\n{body}\n")
    subprocess.run(["git", "init", "-q", "-b", "main", repo], check=True)
    subprocess.run(
        ["git", "-C", repo, "fast-import", "--quiet"], input="".join(stream), text=True, check=True
    )
    return repo


PERL = r"""
use File::Find;
my (@files, %index);
find({ wanted => sub { push @files, $File::Find::name if /\.p[ml]$/ }, no_chdir => 1 }, grep { m{^/usr} && -d } @INC);
my %once; @files = grep { !$once{$_}++ } sort @files; splice @files, 400 if @files > 400;
for my $file (@files) {
  open my $in, '<', $file or next;
  while (my $line = <$in>) { push @{ $index{lc $_}{$file} }, $. for $line =~ /(\w{3,})/g }
}
my $places = 0; $places += @$_ for map values %$_, values %index;
printf "%d files, %d words, %d places\n", scalar @files, scalar keys %index, $places;
"""
PYTHON = """
import ast, glob, os
trees = [ast.parse(open(f, errors="replace").read()) for f in sorted(glob.glob(os.path.dirname(os.__file__) + "/*.py"))[:40]]
print(sum(1 for tree in trees for _ in ast.walk(tree)))
"""
NODE = """
const byWord = new Map();
for (let i = 0; i < 300000; i++) { const w = "w" + (i * 7919 % 50021); (byWord.get(w) || byWord.set(w, []).get(w)).push({ i, w }); }
const zipped = require("zlib").gzipSync(JSON.stringify([...byWord].slice(0, 9000)));
console.log(byWord.size, require("zlib").gunzipSync(zipped).length);
"""
JAVA = """
import java.util.*; import java.util.stream.*; import java.util.zip.*;
public class Main { public static void main(String[] none) throws Exception {
  Map<String, List<Integer>> index = new TreeMap<>();
  for (int i = 0; i < 400000; i++) index.computeIfAbsent("w" + (i * 7919L % 50021), k -> new ArrayList<>()).add(i);
  Deflater d = new Deflater(); byte[] out = new byte[1 << 16]; long n = 0;
  d.setInput(index.toString().getBytes()); d.finish(); while (!d.finished()) n += d.deflate(out); d.end();
  System.out.println(index.size() + " " + n + " " + IntStream.range(0, 1000000).parallel().filter(x -> x % 7 == 3).count());
} }
"""
SQL = """create table word(id integer primary key, text, size);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000) insert into word select i, hex(i * 7919 % 50021), i % 97 from n;
create index by_text on word(text);
select count(*), sum(size) from (select text, sum(size) as size from word group by text order by 2 desc);
select count(*), group_concat(distinct a.size) from word a join word b on a.text = b.text and a.id < b.id where a.size < 9;"""
HTML = (
    "data:text/html,<p id=p></p><script>let s=[];for(let"
    " i=0;i<30000;i++)s.push('w'+i*7919%2503);document.getElementById('p').textContent=new"
    " Set(s).size</script>"
)


# --- servers: what their clients do, and the answers ---


def until(ready, child):
    for _ in range(int(LIMIT / 0.02)):
        if ready() or child.poll() is not None:
            return
        time.sleep(0.02)


def connects(name):
    with socket.socket(socket.AF_UNIX) as s:
        return s.connect_ex(path(name)) == 0


def ask_redis(child):
    until(lambda: connects("redis.sock"), child)
    at = ["-s", path("redis.sock")]
    subprocess.run(
        [
            "redis-benchmark",
            *at,
            "-q",
            "-n",
            "4000",
            "-c",
            "20",
            "--threads",
            "2",
            "-t",
            "set,get,incr,lpush,rpop,sadd,hset,zadd,mset",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    fill = "".join(
        f"SET key{i} {'v' * (i % 300)}\nRPUSH list{i % 50} {i}\nHSET hash{i % 50} field{i} {i}\n"
        for i in range(10000)
    )
    subprocess.run(["redis-cli", *at], input=fill, stdout=subprocess.DEVNULL, text=True)
    answers = [
        text_of("redis-cli", *at, *question.split())
        for question in (
            "DBSIZE",
            "GET counter:__rand_int__",
            "LLEN list7",
            "HGET hash7 field7",
            "STRLEN key299",
        )
    ]
    subprocess.run(
        ["redis-cli", *at, "SHUTDOWN", "NOSAVE"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return answers


def ask_nginx(child):
    until(lambda: connects("nginx.sock"), child)
    answers = {}

    def client(number):
        digest, connection = hashlib.sha256(), http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(path("nginx.sock"))
        for i in range(400):
            connection.request(
                "GET",
                ("/many.txt", "/small.txt", "/none")[i % 3],
                headers={"Accept-Encoding": ("gzip", "identity")[i % 2]},
            )
            answer = connection.getresponse()
            digest.update(b"%d" % answer.status + answer.read())
        connection.close()
        answers[number] = digest.hexdigest()

    clients = [threading.Thread(target=client, args=(n,)) for n in range(4)]
    [c.start() for c in clients]
    [c.join() for c in clients]
    try:
        os.kill(
            int(open(path("nginx.pid")).read()), signal.SIGQUIT
        )  # the master, which is not the child under record
    except (OSError, ValueError):
        pass
    return answers


def nginx_conf():
    os.makedirs(path("www"), exist_ok=True)
    write("www/many.txt", words(20000))
    write("www/small.txt", words(200))
    places = "".join(
        f"{kind}_temp_path {path(kind)}; "
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return write(
        "nginx.conf",
        f"user root; daemon off; worker_processes 2; pid {path('nginx.pid')}; events {{}}\nhttp {{"
        " access_log off; keepalive_requests 9999; gzip on; gzip_types text/plain; default_type"
        f" text/plain; {places}\nserver {{ listen unix:{path('nginx.sock')}; root {path('www')}; }}"
        " }\n",
    )


# --- the programs ---


@dataclasses.dataclass
class Program:
    name: str
    package: str  # Debian's
    needs: list  # files or commands that must be there
    version: tuple
    command: typing.Callable  # makes what it works on; run once
    env: dict = dataclasses.field(default_factory=dict)
    ask: typing.Optional[typing.Callable] = None  # a server's clients
    writes: str = ""  # a file that belongs to the output


python = os.path.realpath(sys.executable)  # not a shell shim in front of it
cc1plus = text_of("g++", "-print-prog-name=cc1plus") if shutil.which("g++") else "cc1plus"
PROGRAMS = [
    Program(
        "perl",
        "perl",
        ["perl"],
        ("perl", "-e", "print $^V"),
        lambda: ["perl", write("index.pl", PERL)],
    ),
    Program(
        "python3", "python3", [python], (python, "-V"), lambda: [python, write("parse.py", PYTHON)]
    ),
    Program(
        "python3, PYTHONMALLOC=malloc",
        "python3",
        [python],
        (python, "-V"),
        lambda: [python, write("parse.py", PYTHON)],
        env={"PYTHONMALLOC": "malloc"},
    ),
    Program(
        "git log -p",
        "git",
        ["git"],
        ("git", "--version"),
        lambda: ["git", "-C", repository(), "log", "-p", "--stat"],
    ),
    Program(
        "sqlite3",
        "sqlite3",
        ["sqlite3"],
        ("sqlite3", "--version"),
        lambda: ["sqlite3", ":memory:", SQL],
    ),
    Program(
        "cc1plus",
        "g++",
        ["g++", cc1plus],
        ("g++", "-dumpfullversion"),
        lambda: [
            cc1plus,
            "-quiet",
            "-imultiarch",
            text_of("g++", "-print-multiarch"),
            "-D_GNU_SOURCE",
            "-O1",
            cpp(),
            "-o",
            "-",
        ],
    ),
    Program(
        "g++ (with as and ld)",
        "g++",
        ["g++"],
        ("g++", "-dumpfullversion"),
        lambda: ["g++", "-O0", cpp(), "-o", path("many")],
        writes="many",
    ),
    Program("node", "nodejs", ["node"], ("node", "--version"), lambda: ["node", "-e", NODE]),
    Program(
        "xz -T2",
        "xz-utils",
        ["xz"],
        ("xz", "--version"),
        lambda: [
            "xz",
            "-T2",
            "-4",
            "--block-size=1MiB",
            "-k",
            "-c",
            write("words.txt", words(900000)),
        ],
    ),
    Program(
        "redis-server",
        "redis-server redis-tools",
        ["redis-server", "redis-benchmark", "redis-cli"],
        ("redis-server", "--version"),
        lambda: [
            "redis-server",
            "--port",
            "0",
            "--unixsocket",
            path("redis.sock"),
            "--save",
            "",
            "--io-threads",
            "2",
            "--dir",
            work,
        ],
        ask=ask_redis,
    ),
    Program(
        "nginx",
        "nginx-light",
        ["nginx"],
        ("nginx", "-v"),
        lambda: ["nginx", "-e", path("error.log"), "-p", work, "-c", nginx_conf()],
        ask=ask_nginx,
    ),
    Program(
        "java",
        "default-jdk-headless",
        ["java", "javac"],
        ("java", "-version"),
        lambda: ["java", write("Main.java", JAVA)],
    ),
    Program(
        "chromium --headless",
        "chromium",
        ["chromium"],
        ("chromium", "--version"),
        lambda: [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--user-data-dir=" + path("chromium"),
            "--dump-dom",
            HTML,
        ],
    ),
]
MODES = {"sampled": [], "exact": ["--exact"]}


@dataclasses.dataclass
class Run:
    code: int
    output: str
    cpu: float
    complaint: str


def run(program, command, wrap=()):
    out, err = path("stdout"), path("stderr")
    with open(out, "wb") as o, open(err, "wb") as e:
        child = subprocess.Popen(
            [*wrap, *command],
            env=dict(os.environ, **program.env),
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=o,
            stderr=e,
            start_new_session=True,
        )
    alarm = threading.Timer(LIMIT, os.killpg, (child.pid, signal.SIGKILL))
    alarm.start()
    answers = program.ask(child) if program.ask else None
    _, status, usage = os.wait4(child.pid, 0)
    alarm.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    digest = hashlib.sha256(
        repr(sorted(answers.items()) if isinstance(answers, dict) else answers).encode()
        if program.ask
        else open(out, "rb").read()
    )
    if program.writes:
        digest.update(
            open(path(program.writes), "rb").read()
            if os.path.exists(path(program.writes))
            else b"none"
        )
        os.path.exists(path(program.writes)) and os.remove(path(program.writes))
    complaint = next(
        (line.strip() for line in open(err, errors="replace") if line.startswith("heapprof")), ""
    )
    return Run(child.returncode, digest.hexdigest(), usage.ru_utime + usage.ru_stime, complaint)


def recorded(program, command, mode, *options):
    folder = path("profiles-" + mode)
    shutil.rmtree(folder, ignore_errors=True)
    one = run(program, command, [a.heapprof, "record", *MODES[mode], *options, "-o", folder, "--"])
    return one, sorted(glob.glob(folder + "/*.pb.gz"))


def read(profiles):
    ask = lambda *words: json.loads(
        subprocess.run(
            [a.heapprof, *words, "-f", "json", *profiles], check=True, stdout=subprocess.PIPE
        ).stdout
    )
    totals = {t["sample_type"]["type"]: t["total"] for t in ask("info")["sample_types"]}
    names = [row["function"] for row in ask("top", "--all-code", "-t", "alloc_space", "-n", "3")["rows"]]
    return totals, names


def size(n):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.1f} {unit}" if unit != "B" else f"{n} B"
        n /= 1024


missing, notes, failed = [], [], False
print(
    "| program | version | mode | exit code | output | profiles | alloc_objects | alloc_space |"
    " peak_space | most allocated by | bare CPU s | CPU ratio |"
)
print("| :--- | :--- | :--- | :--- | :--- | ---: | ---: | ---: | ---: | :--- | ---: | ---: |")
for program in PROGRAMS:
    if (
        a.only
        and program.name not in a.only.split(",")
        and program.name.split()[0].rstrip(",") not in a.only.split(",")
    ):
        continue
    if any(not shutil.which(need) for need in program.needs):
        missing.append(f"* {program.name} is not installed: apt-get install {program.package}")
        continue
    version = re.search(r"\d+(\.\d+)+", text_of(*program.version))
    command = program.command()
    first = run(program, command)
    seen = {mode: [recorded(program, command, mode)] for mode in MODES} if a.heapprof else {}
    read_ = {
        mode: (len(runs[0][1]), *read(runs[0][1])) if runs[0][1] else (0, {}, [])
        for mode, runs in seen.items()
    }
    bare, took = [first], {mode: [] for mode in seen}
    for _ in range(a.runs):
        bare.append(run(program, command))
        for mode in seen:
            seen[mode].append(recorded(program, command, mode, "--no-symbolize"))
            took[mode].append(seen[mode][-1][0].cpu / max(bare[-1].cpu, 0.001))
    seconds = f"{statistics.median(one.cpu for one in bare):.2f}"
    if any((one.code, one.output) != (first.code, first.output) for one in bare):
        notes.append(
            f"* {program.name}: the bare runs differ among themselves, so the comparison says"
            " nothing"
        )
    if not seen:
        print(
            f"| {program.name} | {version and version[0]} | bare | {first.code} |"
            f" {first.output[:8]} | | | | | | {seconds} | |",
            flush=True,
        )
    for mode, runs in seen.items():
        codes = {one.code for one, _ in runs}
        same = all(one.output == first.output for one, _ in runs)
        count, totals, names = read_[mode]
        numbers = (
            [
                f"{totals['alloc_objects']:,}",
                size(totals["alloc_space"]),
                size(totals["peak_space"]),
            ]
            if totals
            else ["–"] * 3
        )
        code = (
            f"{first.code} ="
            if codes == {first.code}
            else f"{first.code} ≠ {', '.join(map(str, sorted(codes)))}"
        )
        ratio = f"{statistics.median(took[mode]):.2f}" if a.runs else "–"
        print(
            f"| {program.name} | {version and version[0]} | {mode} | {code} |"
            f" {'=' if same else 'differs'} | {count} | "
            + " | ".join(numbers)
            + f" | {', '.join(f'`{n}`' for n in names)} | {seconds} | {ratio} |",
            flush=True,
        )
        failed |= codes != {first.code} or not same or not count
        if not count:
            notes.append(f"* {program.name}, {mode}: no profile. {runs[0][0].complaint}")
print("", *notes, *missing, sep="\n")
sys.exit(failed)
