#!/usr/bin/env python3
"""Audits real pre-forking daemons, and prints the tables of docs/dev/real-programs.md.

usage: daemons.py --heapprof PATH [--only starman,...] [--variants before,after] [--folder DIR]

Each daemon has three workers, and each variant runs bare and under `heapprof fork-audit`:

  before         the modules are loaded by the first request of each worker
  after          the master loads the same modules before it forks
  after+touched  and 300,000 values are inherited, and reading them writes: Perl notes the number
                 next to the string, Python counts a reference
  after+settled  the same values, in a form that is read without writing: Perl's were used as numbers
                 before the fork, Python's are in an array.array

Needs root (Apache and PostgreSQL become other users), and Debian's starman, libmojolicious-perl,
libapache2-mod-perl2, postgresql-plperl-15, libdatetime-perl; gunicorn (PyPI) in PATH; and for Perl
`heapprof perl-install`, in a cache that these users can read. Answers must have the same hash in
all runs with the same data. The exit code is 1 if an answer, an exit code or a process is not as it
should be.
"""

import argparse, concurrent.futures, hashlib, http.client, json, os, pwd, re, shutil, signal, socket
import subprocess, sys, tempfile, time

HERE = os.path.join(tempfile.gettempdir(), "heapprof-daemons")
GUNICORN = shutil.which("gunicorn") or "gunicorn"
PG_BIN = "/usr/lib/postgresql/15/bin"
WORKERS, REQUESTS, CONNECTIONS, LIMIT = 3, 60, 6, 60
COUNT = 300_000  # inherited values

# --- the applications ---

WORK_PM = r"""package Work;
use strict; use warnings;
our ($loads, $data) = ('@LOADS@', '@DATA@');
our @numbers = $data eq 'none' ? () : map { '' . ($_ * 7 + 1000) } 1 .. @COUNT@;

# Real modules, some in Perl, some with C parts. The last one does not exist: applications try such
# a faster module first, and each try searches all of @INC.
sub load {
  require POSIX; require Text::Balanced; require DateTime; require JSON::PP;
  return eval { require JSON::XS::Missing; 1 } ? 1 : 0;
}

sub sum { my $sum = 0; $sum += $_ for @numbers; return $sum }

sub answer {
  my $n = shift;
  my $missing = load();
  my ($inside) = Text::Balanced::extract_bracketed("($n (of) many) rest", '()');
  my $day = DateTime->new(year => 2024, month => 1, day => 1)->add(days => $n)->ymd;
  return JSON::PP->new->canonical->encode({ n => $n + 0, day => $day, inside => $inside,
    half => POSIX::floor($n / 2), missing => $missing, sum => sum() });
}

load() if $loads eq 'after';
sum() if $data eq 'settled';
1;
"""

# A worker waits a little in each request, so that others get some too.
STARMAN_APP = r"""use lib '@DIR@'; use Work; use Time::HiRes ();
sub { my $env = shift; my ($n) = $env->{QUERY_STRING} =~ /n=(\d+)/; Time::HiRes::sleep(0.01);
  [200, ['Content-Type' => 'application/json', 'X-Worker' => $$], [Work::answer($n)]] };
"""
MOJO_APP = r"""#!/usr/bin/perl
use lib '@DIR@'; use Work; use Time::HiRes ();
use Mojolicious::Lite -signatures;
app->log->path('@DIR@/mojo.log');
get '/' => sub ($c) { Time::HiRes::sleep(0.01); $c->res->headers->header('X-Worker' => $$);
  $c->render(data => Work::answer($c->param('n')), format => 'json') };
app->start;
"""
APACHE_CONF = """ServerRoot "@DIR@"
ServerName 127.0.0.1
Listen 127.0.0.1:@PORT@
PidFile "@DIR@/apache.pid"
Mutex file:@DIR@ default
ErrorLog "@DIR@/error.log"
User www-data
Group www-data
LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule perl_module /usr/lib/apache2/modules/mod_perl.so
StartServers @WORKERS@
MinSpareServers 1
MaxSpareServers @WORKERS@
MaxRequestWorkers @WORKERS@
MaxConnectionsPerChild 0
KeepAliveTimeout 1
PerlSwitches -I@DIR@
PerlPostConfigRequire @DIR@/startup.pl
<Location "/">
  SetHandler modperl
  PerlResponseHandler Handler
  Require all granted
</Location>
"""
APACHE_START = "use lib '@DIR@'; use Work; use Handler; 1;\n"
APACHE_HANDLER = r"""package Handler;
use strict; use warnings; use Apache2::RequestRec (); use Apache2::RequestIO (); use APR::Table ();
use Time::HiRes (); use Work;
sub handler { my $r = shift; my ($n) = $r->args =~ /n=(\d+)/; Time::HiRes::sleep(0.01);
  $r->content_type('application/json'); $r->headers_out->set('X-Worker' => $$);
  $r->print(Work::answer($n)); return 0 }
1;
"""
PYTHON_APP = '''import array, os, time
LOADS, DATA = "@LOADS@", "@DATA@"
values = (i * 7 + 1000 for i in range(1, @COUNT@ + 1))
numbers = {"none": list, "touched": lambda: list(values), "settled": lambda: array.array("q", values)}[DATA]()


def load():
    """Imports where they are used, as many applications have them."""
    import asyncio, decimal, email.message, sqlite3, xml.etree.ElementTree
    try:
        import ujson_missing
    except ImportError:
        pass
    return asyncio, decimal, email.message, sqlite3, xml.etree.ElementTree


def answer(n):
    asyncio, decimal, message, sqlite3, tree = load()
    import datetime, json
    database = sqlite3.connect(":memory:")
    half = database.execute("select ? / 2", (n,)).fetchone()[0]
    database.close()
    mail = message.EmailMessage()
    mail["Subject"] = "(%d (of) many)" % n
    day = datetime.date(2024, 1, 1) + datetime.timedelta(n)
    return json.dumps({"n": n, "day": str(day), "inside": tree.fromstring("<a>%s</a>" % mail["Subject"]).text,
                       "half": half, "missing": 0, "sum": sum(numbers)}, sort_keys=True, separators=(",", ":"))


def app(environ, start_response):
    time.sleep(0.01)
    body = answer(int(environ["QUERY_STRING"].partition("=")[2])).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("X-Worker", str(os.getpid())),
                              ("Content-Length", str(len(body)))])
    return [body]


if LOADS == "after":
    load()
'''
PG_CONF = """
listen_addresses = ''
unix_socket_directories = '@DIR@'
shared_buffers = 16MB
max_connections = 20
fsync = off
max_parallel_workers_per_gather = 0
shared_preload_libraries = '@PRELOAD@'
plperl.on_init = 'use lib "@DIR@"; require Work;'
"""
PG_SETUP = """create extension pg_trgm; create extension plperlu;
create function answer(integer) returns text language plperlu as 'return Work::answer($_[0])';"""


# --- folders and commands ---


class Daemon:
    """How a daemon is started and stopped: a method for each, which fills a folder and returns the
    command. `user` is whose processes they are; `stop` is the signal its operators send."""

    def __init__(self, variant, folder):
        self.loads, _, self.data = variant.partition("+")
        self.data = self.data or "none"
        self.dir, self.user, self.stop, self.title = folder, None, signal.SIGTERM, None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def write(self, name, text, mode=0o644):
        words = {"DIR": self.dir, "PORT": self.port, "LOADS": self.loads, "DATA": self.data,
                 "WORKERS": WORKERS, "COUNT": COUNT,
                 "PRELOAD": "plperl,pg_trgm" if self.loads == "after" else ""}
        path = os.path.join(self.dir, name)
        with open(path, "w") as f:
            f.write(re.sub(r"@([A-Z]+)@", lambda m: str(words[m.group(1)]), text))
        os.chmod(path, mode)
        return path

    def starman(self):
        self.write("Work.pm", WORK_PM)
        app, self.stop = self.write("app.psgi", STARMAN_APP), signal.SIGQUIT
        preload = [] if self.loads == "nopreload" else ["--preload-app"]
        return ["/usr/bin/starman", *preload, "--workers", str(WORKERS), "--listen", f"127.0.0.1:{self.port}",
                "--disable-keepalive", "--env", "production", app]

    def mojo(self):
        self.write("Work.pm", WORK_PM)
        app, self.stop = self.write("app.pl", MOJO_APP, 0o755), signal.SIGQUIT
        return ["/usr/bin/perl", app, "prefork", "-m", "production", "-w", str(WORKERS), "-s", "0", "-c", "1",
                "-P", self.dir + "/prefork.pid", "-l", f"http://127.0.0.1:{self.port}"]

    def apache(self):
        self.write("Work.pm", WORK_PM)
        self.write("Handler.pm", APACHE_HANDLER)
        self.write("startup.pl", APACHE_START)
        conf = self.write("apache.conf", APACHE_CONF)
        return ["/usr/sbin/apache2", "-d", self.dir, "-f", conf, "-DFOREGROUND"]

    def apache_user(self):
        self.user = "www-data"
        return self.apache()

    def gunicorn(self):
        self.write("app.py", PYTHON_APP)
        preload = [] if self.loads == "nopreload" else ["--preload"]
        return [GUNICORN, *preload, "--workers", str(WORKERS), "--bind", f"127.0.0.1:{self.port}",
                "--control-socket", self.dir + "/ctl", "--chdir", self.dir, "app:app"]

    def postgres(self):
        self.user, self.stop, self.title = "postgres", signal.SIGINT, "[local]"  # INT is the fast shutdown
        self.write("Work.pm", WORK_PM)
        data = self.dir + "/data"
        os.chmod(self.dir, 0o755)
        shutil.chown(self.dir, "postgres", "postgres")
        made = os.path.join(HERE, "pg-template")
        if not os.path.exists(made + "/PG_VERSION"):
            make_cluster(made, self)
        shutil.rmtree(data, ignore_errors=True)
        subprocess.run(["cp", "-a", made, data], check=True)
        self.write("data/postgresql.auto.conf", PG_CONF)
        return [PG_BIN + "/postgres", "-D", data]


def as_user(user):
    """Arguments of Popen for processes of that user."""
    if not user or os.getuid():
        return {}
    who = pwd.getpwnam(user)
    return {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": [],
            "env": dict(os.environ, HOME=who.pw_dir, USER=user)}


def make_cluster(made, daemon):
    """A data folder with the extensions and the function, made once and copied for each run."""
    os.makedirs(made, exist_ok=True)
    os.chmod(made, 0o700)
    shutil.chown(made, "postgres", "postgres")
    me = as_user("postgres")
    quiet = {"stdout": subprocess.DEVNULL, "cwd": "/tmp", "check": True, **me}
    subprocess.run([PG_BIN + "/initdb", "-D", made, "-A", "trust", "--no-sync", "--locale=C.UTF-8"], **quiet)
    options = f"-c listen_addresses= -k {daemon.dir} -c 'plperl.on_init=use lib \"{daemon.dir}\"; require Work;'"
    subprocess.run([PG_BIN + "/pg_ctl", "-D", made, "-w", "-l", daemon.dir + "/setup.log", "-o", options, "start"], **quiet)
    try:
        subprocess.run([PG_BIN + "/psql", "-qX", "-h", daemon.dir, "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-c", PG_SETUP],
                       **quiet)
    finally:
        subprocess.run([PG_BIN + "/pg_ctl", "-D", made, "-w", "-m", "fast", "stop"], **quiet)


# --- processes and their memory ---


def children(pid):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as f:
                if int(f.read().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(name))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return sorted(found)


def master_of(pid):
    """The daemon's own master: the command in front may wait for it as its child."""
    while os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("heapprof"):
        below = children(pid)
        if not below:
            return pid
        pid = below[0]
    return pid


def title(pid):
    """The command line, empty when the process has ended since it was listed."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def memory(pid):
    """What smaps_rollup says, in KiB."""
    with open(f"/proc/{pid}/smaps_rollup") as f:
        fields = dict(line.split(":") for line in f.read().splitlines()[1:])
    return {name: int(fields[name].split()[0])
            for name in ("Rss", "Pss", "Private_Dirty", "Private_Clean", "Shared_Dirty", "Shared_Clean")}


# --- clients ---


def ask(port, n):
    """One request on a connection of its own: the body, and the worker that answered."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    try:
        link.request("GET", f"/?n={n}", headers={"Connection": "close"})
        reply = link.getresponse()
        return reply.status, reply.read().decode(), int(reply.headers.get("X-Worker", 0))
    finally:
        link.close()


def ask_http(daemon, master):
    """60 requests over several connections at a time, then more until each worker has answered.
    Only the 60 are hashed."""
    with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
        replies = list(pool.map(lambda n: ask(daemon.port, n), range(REQUESTS)))
        seen = {worker for _, _, worker in replies}
        for _ in range(20):
            if len(seen) >= WORKERS:
                break
            more = pool.map(lambda n: ask(daemon.port, n), range(CONNECTIONS * 2))
            seen |= {worker for _, _, worker in more}
    wrong = [f"{status} {body[:200]}" for status, body, _ in replies if status != 200]
    return [body for _, body, _ in replies], seen, wrong, lambda: None


def ask_postgres(daemon, master):
    """Three sessions that stay open, twenty requests each."""
    command = [PG_BIN + "/psql", "-qXAt", "-h", daemon.dir, "-d", "postgres"]
    sessions = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, cwd="/tmp", **as_user("postgres")) for _ in range(WORKERS)]
    bodies, seen, load = [], set(), "load 'plperl'; load 'pg_trgm';\n" if daemon.loads != "after" else ""
    for session in sessions:
        session.stdin.write(load + "select pg_backend_pid();\n")
        session.stdin.flush()
        seen.add(int(session.stdout.readline()))
    for n in range(REQUESTS):
        session = sessions[n % WORKERS]
        session.stdin.write(f"select answer({n}), similarity('fork {n}', 'forks {n}');\n")
        session.stdin.flush()
        body, _, alike = session.stdout.readline().rstrip("\n").rpartition("|")
        bodies.append(body if 0 < float(alike or 0) <= 1 else "similarity: " + body + alike)

    def close():
        for session in sessions:
            session.stdin.close()
            session.wait(LIMIT)

    return bodies, seen, [], close


def expected(daemon, n):
    import datetime

    total = 0 if daemon.data == "none" else sum(i * 7 + 1000 for i in range(1, COUNT + 1))
    day = datetime.date(2024, 1, 1) + datetime.timedelta(n)
    return {"n": n, "day": str(day), "inside": f"({n} (of) many)", "half": n // 2, "missing": 0, "sum": total}


def check(daemon, bodies):
    wrong = []
    for n, body in enumerate(bodies):
        try:
            if json.loads(body) != expected(daemon, n):
                wrong.append(f"request {n}: {body[:200]}")
        except ValueError:
            wrong.append(f"request {n}: no JSON: {body[:200]!r}")
    return wrong


# --- a run ---


def ready(daemon, child):
    """Waits until the daemon answers, without a request that would load anything."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and child.poll() is None:
        family, at = socket.AF_INET, ("127.0.0.1", daemon.port)
        if daemon.title:
            family, at = socket.AF_UNIX, daemon.dir + "/.s.PGSQL.5432"
        if daemon.title and os.path.exists(at):
            done = subprocess.run([PG_BIN + "/pg_isready", "-q", "-h", daemon.dir])
            if done.returncode == 0:
                return True
        elif not daemon.title:
            with socket.socket(family) as s:
                if s.connect_ex(at) == 0:
                    return True
        time.sleep(0.05)
    return False


def all_forked(master):
    end = time.monotonic() + LIMIT
    while len(children(master)) < WORKERS and time.monotonic() < end:
        time.sleep(0.05)


def messages(folder, names):
    """What was written to stderr and the daemon's own log; numbers are N, so that runs compare."""
    lines = set()
    for name in names:
        if os.path.exists(os.path.join(folder, name)):
            with open(os.path.join(folder, name), errors="replace") as f:
                lines |= {re.sub(r"\[[A-Z][a-z]{2} [^]]*\]", "[TIME]", line) for line in f.read().replace(folder, "FOLDER").replace(os.path.dirname(folder), "OUT").splitlines()}
    return sorted({re.sub(r"0x[0-9a-f]+|\d+", "N", line) for line in lines if line.strip()})


def end_of(child, stop_pid, how, known):
    """Stops the daemon; what is left after a minute is killed, by its process ids."""
    began = time.monotonic()
    if child.poll() is None:
        os.kill(stop_pid, how)
    try:
        code = child.wait(LIMIT)
        hung = False
    except subprocess.TimeoutExpired:
        code, hung = None, True
    took = time.monotonic() - began
    time.sleep(0.2)
    left = []
    for pid, name in known.items():
        try:
            if title(pid) == name and name:
                left.append(f"{pid} {name}")
                os.kill(pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            pass
    if hung:
        child.kill()
        child.wait()
    return code, took, hung, left


def start(daemon, command, prefix, output_folder):
    profiles = os.path.join(output_folder, "profiles")
    os.makedirs(profiles, exist_ok=True)
    if daemon.user:
        for folder in (daemon.dir, profiles):
            shutil.chown(folder, daemon.user)
    with open(daemon.dir + "/stdout", "wb") as out, open(daemon.dir + "/stderr", "wb") as err:
        return subprocess.Popen([word.replace("{out}", profiles) for word in prefix] + command, stdin=subprocess.DEVNULL,
                                stdout=out, stderr=err, cwd=daemon.dir, start_new_session=True, **as_user(daemon.user))


def run(name, prefix, variant, output_folder, stop_top=True, stop=None):
    """Runs one daemon once. `{out}` in a word of prefix is output_folder/profiles. The stop signal
    goes to the first process (the command in front, if it stays), or to the master if not stop_top."""
    output_folder = os.path.abspath(output_folder)
    folder = os.path.join(output_folder, "daemon")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    daemon = Daemon(variant, folder)
    command = getattr(daemon, name.replace("-", "_"))()
    began = time.monotonic()
    child = start(daemon, command, prefix, output_folder)
    result = {"name": name, "variant": variant, "hash": None, "wrong": [], "workers": [], "others": [],
              "profiles": 0, "start_s": None}
    known, close, master = {}, lambda: None, child.pid
    try:
        if ready(daemon, child):
            master = master_of(child.pid)
            all_forked(master)
            result["start_s"] = round(time.monotonic() - began, 2)
            known = {pid: title(pid) for pid in [master, *children(master)]}
            bodies, seen, wrong, close = (ask_postgres if daemon.title else ask_http)(daemon, master)
            result["hash"] = hashlib.sha256("\n".join(bodies).encode()).hexdigest()[:12]
            result["wrong"] = wrong + check(daemon, bodies)
            result["master"] = memory(master)
            for pid in children(master):
                known[pid] = title(pid)
                if not known[pid]:
                    continue
                result["workers" if pid in seen else "others"].append({"pid": pid, "title": known[pid], **memory(pid)})
        else:
            result["wrong"].append("did not answer")
    except (OSError, http.client.HTTPException, ValueError) as e:
        result["wrong"].append(f"{type(e).__name__}: {e}")
    close()
    code, took, hung, left = end_of(child, child.pid if stop_top else master, stop or daemon.stop, known)
    result.update(code=code, stop_s=round(took, 2), hung=hung, left=left, seconds=round(time.monotonic() - began, 2),
                  messages=messages(folder, ["stderr", "stdout", "error.log", "mojo.log"]))
    result["profiles"] = len(os.listdir(os.path.join(output_folder, "profiles")))
    shutil.rmtree(folder + "/data", ignore_errors=True)
    return result


# --- the tables ---

NAMES = {"starman": "starman", "mojo": "Mojolicious prefork", "apache-user": "Apache, mod_perl",
         "gunicorn": "gunicorn --preload", "postgres": "PostgreSQL, plperl"}


def mean(rows, *fields):
    """KiB a worker."""
    return round(sum(row[f] for row in rows for f in fields) / len(rows)) if rows else 0


def audited(heapprof, folder, workers):
    """What the audit says of those that have answered."""
    words = [heapprof, "fork-audit", "-n", "3", "-f", "json", os.path.join(folder, "profiles")]
    found = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    pids = {worker["pid"] for worker in workers}
    of = [child for child in found["children"] if child["pid"] in pids]
    files = [load for load in found["loads"] if load["kind"] != "string eval"]
    first = f"{files[0]['name']}, {files[0]['each'] / (1 << 20):.1f} MiB" if files else "none"
    return of, len(files), len(found["missing"]), first, found


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--heapprof", required=True)
    ap.add_argument("--only", default=",".join(NAMES))
    ap.add_argument("--variants", default="before,after")
    ap.add_argument("--folder", default=HERE)
    a = ap.parse_args()
    heapprof, folder = os.path.abspath(a.heapprof), os.path.abspath(a.folder)
    print("| daemon | variant | private and dirty, bare | new | copied | both | files loaded | looked for | first row |")
    print("| :--- | :--- | ---: | ---: | ---: | ---: | ---: | ---: | :--- |")
    bad, hashes = False, {}
    for name in a.only.split(","):
        for variant in a.variants.split(","):
            codes = {}
            for mode, prefix in {"bare": [], "audit": [heapprof, "fork-audit", "-n", "3", "-o", "{out}", "--"]}.items():
                out = os.path.join(folder, f"{name}-{variant}-{mode}")
                shutil.rmtree(out, ignore_errors=True)
                r = run(name, prefix, variant, out)
                codes[mode] = r["code"]
                same = hashes.setdefault((name, variant.partition("+")[2]), r["hash"]) == r["hash"]
                for line in [*r["wrong"][:3], *r["left"], *([] if same else [f"answers differ: {r['hash']}"])]:
                    print(f"  {name} {variant} {mode}: {line}", file=sys.stderr)
                bad |= bool(not same or r["wrong"] or r["hung"] or r["left"] or r["code"] != codes["bare"])
                if mode == "bare":
                    bare = mean([{"kib": w["Private_Dirty"]} for w in r["workers"]], "kib")
                else:
                    of, files, missing, first, whole = audited(heapprof, out, r["workers"])
            kib = [mean(of, *fields) // 1024 for fields in
                   (["new_space"], ["unshared_space"], ["new_space", "unshared_space"])]
            cells = [NAMES[name], variant, bare, *kib, files, missing, first]
            print("| " + " | ".join(f"{c:,}" if isinstance(c, int) else c for c in cells) + " |", flush=True)
            for row in [] if "+" not in variant else whole["unshared"][:2]:
                print(f"  {row['bytes'] >> 10:,} KiB {row['kind']}: {row['function']} {row['file']}:{row['line']}")
            for child in of:
                if child["lacks"]:
                    print(f"  {name} {variant}: {child['pid']} {child['lacks']}", file=sys.stderr)
    sys.exit(bad)


if __name__ == "__main__":
    main()
