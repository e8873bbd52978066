#!/usr/bin/env python3
"""Starts and asks SQL engines, so that one statement can be compared between all of them.

usage: oracle/engines.py          (it fetches all engines, and says what each of them is)

The engines are ClickHouse 18.16 of Debian, a server or several of them as shards; chdb, which is
ClickHouse 26 in one process; DuckDB; and the SQLite of this Python. Nothing is installed: Debian's
packages are unpacked to one folder below /tmp, and chdb and DuckDB live in a venv below /tmp.

Each engine has `ask(statement)`, which gives the rows as lists, and raises `Refused` with what the
engine said. A test may use it so:

    with engines.clickhouse(shards=2) as servers, engines.Duckdb() as duckdb:
        assert servers[0].ask("SELECT 1") == duckdb.ask("SELECT 1") == [[1]]
        servers[1].kill()
        servers[1].start()
"""

import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.parse

UNPACKED = pathlib.Path("/tmp/heapprof-clickhouse")
ENGINES = pathlib.Path("/tmp/heapprof-engines")
PASSWORD = "a pass&word"
PYPI = ["chdb", "duckdb"]
LIBC = ctypes.CDLL(None)


class Refused(Exception):
    """An engine said no. `status` is that of HTTP, and is 0 where the engine speaks no HTTP."""

    def __init__(self, status, text):
        super().__init__(f"{status}: {text}" if status else text)
        self.status, self.text = status, text


# ---- ClickHouse 18.16 of Debian ---------------------------------------------------------------


def _run(command, what, **options):
    """Gives what a command printed. The error says what was wanted, and what the command said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    except FileNotFoundError:
        raise RuntimeError(f"{what}: this machine has no {command[0]}") from None
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise RuntimeError(f"{what}: {command[0]} ended with {done.returncode}: {said}")
    return done.stdout


def _libraries(root):
    """The folders of the unpacked libraries, as LD_LIBRARY_PATH wants them."""
    folders = sorted({str(path.parent) for path in root.rglob("*.so*") if path.is_file()})
    return ":".join(folders)


def _program(root):
    found = [root / "usr" / folder / "clickhouse-server" for folder in ("sbin", "bin")]
    return next((path for path in found if path.exists()), found[0])


def _download(apt, folder):
    """Downloads ClickHouse's packages, and those that an installation would add to this machine."""
    simulate = ["install", "--simulate", "--no-install-recommends", "clickhouse-server"]
    planned = _run(apt + simulate, "Debian's archive has no ClickHouse that fits this machine")
    packages = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    if "clickhouse-server" not in packages:
        # It is installed here, and so its libraries are.
        packages += ["clickhouse-server", "clickhouse-common"]
    folder.mkdir(exist_ok=True)
    _run(apt + ["download", *packages], "ClickHouse's packages can't be downloaded", cwd=folder)


def fetch():
    """Downloads ClickHouse and the libraries that it lacks here, and gives the unpacked root.

    The root stays for later calls, which then do nothing. The package lists are those that this
    machine has, or new ones in a folder of their own if those don't help, so nobody need be root.
    """
    root = UNPACKED / "root"
    if root.exists():
        return root
    UNPACKED.mkdir(parents=True, exist_ok=True)
    work = pathlib.Path(tempfile.mkdtemp(prefix="fetch-", dir=UNPACKED))
    try:
        try:
            _download(["apt-get"], work / "debs")
        except RuntimeError:
            # The machine's package lists are missing or old. The new ones belong to the one who
            # runs this, so apt-get may update them.
            (work / "lists" / "partial").mkdir(parents=True)
            (work / "cache" / "archives" / "partial").mkdir(parents=True)
            apt = ["apt-get", "-o", f"Dir::State::lists={work}/lists"]
            apt += ["-o", f"Dir::Cache={work}/cache"]
            # apt-get drops root for a user who may not write here, unless it is told not to.
            apt += ["-o", "APT::Sandbox::User=root"] if os.geteuid() == 0 else []
            update = apt + ["update", "-o", "APT::Update::Error-Mode=any"]
            _run(update, "ClickHouse can't be fetched, for Debian's archive isn't reachable")
            _download(apt, work / "debs")
        for package in sorted((work / "debs").glob("*.deb")):
            _run(["dpkg", "-x", str(package), str(work / "root")], f"{package.name} is broken")
        environment = dict(os.environ, LD_LIBRARY_PATH=_libraries(work / "root"))
        needed = _run(
            ["ldd", str(_program(work / "root"))], "ClickHouse has no program", env=environment
        )
        lacking = [line.split()[0] for line in needed.splitlines() if "not found" in line]
        if lacking:
            raise RuntimeError(f"ClickHouse lacks these libraries here: {' '.join(lacking)}")
        try:
            (work / "root").rename(root)
        except OSError:
            # Another process may have finished the same work since.
            if not root.exists():
                raise
        return root
    finally:
        shutil.rmtree(work, ignore_errors=True)


CONFIG = """<yandex>
  <logger><level>information</level><log>{folder}/log</log><errorlog>{folder}/errors</errorlog>
    <size>100M</size><count>1</count></logger>
  <listen_host>127.0.0.1</listen_host>
  <http_port>{http}</http_port>
  <tcp_port>{tcp}</tcp_port>
  <interserver_http_host>127.0.0.1</interserver_http_host>
  <interserver_http_port>{interserver}</interserver_http_port>
  <path>{folder}/data/</path>
  <tmp_path>{folder}/tmp/</tmp_path>
  <user_files_path>{folder}/files/</user_files_path>
  <format_schema_path>{folder}/schemas/</format_schema_path>
  <users_config>{folder}/users.xml</users_config>
  <default_profile>default</default_profile>
  <default_database>default</default_database>
  <timezone>UTC</timezone>
  <mark_cache_size>268435456</mark_cache_size>
  <keep_alive_timeout>3</keep_alive_timeout>
  <max_concurrent_queries>100</max_concurrent_queries>
  <remote_servers><heapprof>
{shards}
  </heapprof></remote_servers>
</yandex>
"""

SHARD = """    <shard><internal_replication>true</internal_replication><replica>
      <default_database>{database}</default_database>
      <host>127.0.0.1</host><port>{tcp}</port><user>default</user><password>{password}</password>
    </replica></shard>"""

USERS = """<yandex>
  <profiles><default><max_threads>2</max_threads></default></profiles>
  <quotas><default></default></quotas>
  <users>
    <default><password>{password}</password>{rest}</default>
    <open><password></password>{rest}</open>
  </users>
</yandex>
"""

REST = """<networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile><quota>default</quota>"""


def _xml(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _free_ports(count):
    """Ports that nobody has now, and that the kernel lends to no client while a server is down."""
    taken, sockets = [], []
    try:
        while len(taken) < count:
            probe = socket.socket()
            sockets.append(probe)
            port = random.randrange(20000, 32000)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                taken.append(port)
        return taken
    finally:
        for probe in sockets:
            probe.close()


def _die_with_parent():
    """The kernel kills the server when this Python ends, however it ends."""
    LIBC.prctl(1, signal.SIGKILL)


class Clickhouse:
    """One server. `http`, `tcp` and `interserver` are its ports, and `folder` has its data.

    The user `default` has the password `PASSWORD`, and the user `open` has none.
    """

    name = "clickhouse-18"

    def __init__(self, folder, root, ports, shards, database):
        self.folder, self.root, self.process = folder, root, None
        self.http, self.tcp, self.interserver = ports
        for name in ("data", "tmp", "files", "schemas"):
            (folder / name).mkdir(parents=True)
        password = _xml(PASSWORD)
        cluster = "\n".join(
            SHARD.format(tcp=shard[1], password=password, database=database) for shard in shards
        )
        config = CONFIG.format(
            folder=folder,
            http=self.http,
            tcp=self.tcp,
            interserver=self.interserver,
            shards=cluster,
        )
        (folder / "config.xml").write_text(config)
        (folder / "users.xml").write_text(USERS.format(password=password, rest=REST))

    def start(self, seconds=60):
        """Starts the server on the data that it has, and waits until it answers.

        The thread that calls this must outlive the server, for the kernel ends the two together.
        """
        if self.process:
            raise RuntimeError("the server runs already")
        with (self.folder / "stderr").open("ab") as said:
            self.process = subprocess.Popen(
                [str(_program(self.root)), f"--config-file={self.folder}/config.xml"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=dict(os.environ, LD_LIBRARY_PATH=_libraries(self.root)),
                cwd=self.folder,
                preexec_fn=_die_with_parent,
            )
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.send("GET", "/ping") == (200, b"Ok.\n"):
                    return self
            time.sleep(0.05)
        ended = self.process.poll()
        self.kill()
        said = ""
        for name in ("stderr", "errors"):
            with contextlib.suppress(OSError):
                said += (self.folder / name).read_text(errors="replace")[-1500:]
        how = f"ended with {ended}" if ended is not None else f"didn't answer in {seconds} s"
        raise RuntimeError(f"ClickHouse {how}: {said.strip()}")

    def kill(self, number=signal.SIGKILL):
        """Ends the server at once, as a lost machine would. SIGTERM lets it close its files."""
        if self.process:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None

    def send(self, method, path, body=None, headers=None, seconds=600):
        """Sends a request as it is, and gives the status and the body of the answer."""
        line = http.client.HTTPConnection("127.0.0.1", self.http, timeout=seconds)
        try:
            line.request(method, path, body, headers or {})
            answer = line.getresponse()
            return answer.status, answer.read()
        finally:
            line.close()

    def query(self, statement, body=None, user="default", password=PASSWORD, **settings):
        """The bytes that a statement gives. `settings` hold for it alone.

        With a `body`, which may be an iterator, the statement is sent in the address, and the body
        has the rows of an INSERT. Without one the statement is the body.
        """
        if body is not None:
            settings["query"], statement = statement, body
        path = "/?" + urllib.parse.urlencode(settings, quote_via=urllib.parse.quote)
        headers = {"X-ClickHouse-User": user, "X-ClickHouse-Key": password}
        if isinstance(statement, str):
            statement = statement.encode()
        status, text = self.send("POST", path, statement, headers)
        if status != 200:
            raise Refused(status, text.decode(errors="replace"))
        return text

    def ask(self, statement, **settings):
        """The rows that a SELECT gives. Anything else gives none."""
        settings.setdefault("output_format_json_quote_64bit_integers", 0)
        settings.setdefault("default_format", "JSONCompact")
        text = self.query(statement, **settings)
        return json.loads(text)["data"] if text else []


@contextlib.contextmanager
def clickhouse(shards=2, database="default"):
    """Runs servers that form the cluster `heapprof`. Their data is removed at the end.

    A server looks up the tables of a question from another one in `database`.
    """
    root = fetch()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="heapprof-shards-"))
    ports = _free_ports(3 * shards)
    ports = [ports[3 * at : 3 * at + 3] for at in range(shards)]
    servers = [
        Clickhouse(folder / str(at), root, mine, ports, database)
        for at, mine in enumerate(ports, start=1)
    ]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.kill()
        shutil.rmtree(folder, ignore_errors=True)


# ---- chdb and DuckDB from PyPI ----------------------------------------------------------------


def venv():
    """Makes the venv with chdb and DuckDB, unless it is there, and gives its python."""
    python = ENGINES / "bin" / "python"
    made = ENGINES / "made"
    if made.exists():
        return str(python)
    _run([sys.executable, "-m", "venv", "--clear", str(ENGINES)], "the venv can't be made")
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(install + PYPI, "chdb and DuckDB can't be installed (is PyPI reachable?)")
    made.touch()
    return str(python)


# This program runs in the venv. It answers each line of JSON, a statement, with another one: the
# rows of the statement, or the text of its error.
SERVANT = r"""
import json, os, sys
engine, path = sys.argv[1:]
# An engine may print to the output, as DuckDB does when a statement takes long. No answer is there.
answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
if engine == "duckdb":
    import duckdb
    connection = duckdb.connect(path or ":memory:")
    connection.execute("SET threads = 2")
    def ask(statement):
        done = connection.execute(statement)
        return [list(row) for row in done.fetchall()] if done.description else []
    version = duckdb.__version__
else:
    from chdb import session
    open_session = session.Session(path or None)
    open_session.query("SET output_format_json_quote_64bit_integers = 0")
    open_session.query("SET max_threads = 2")
    def ask(statement):
        text = str(open_session.query(statement, "JSONCompact"))
        return json.loads(text)["data"] if text.strip() else []
    version = ask("SELECT version()")[0][0]
def answer(value):
    answers.write(json.dumps(value) + "\n")
    answers.flush()
answer({"rows": version})
for line in sys.stdin:
    try:
        answer({"rows": ask(json.loads(line))})
    except Exception as error:
        answer({"error": str(error)})
"""


class _Servant:
    """An engine in a process of the venv. `path` is its file or folder, and it may have none."""

    name = ""

    def __init__(self, path=""):
        self.process = subprocess.Popen(
            [venv(), "-c", SERVANT, self.name, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            preexec_fn=_die_with_parent,
        )
        self.version = self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(0, answer["error"])
        return answer["rows"]

    def ask(self, statement):
        """The rows that a statement gives."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(statement) + "\n")
            self.process.stdin.flush()
        return self._answer()

    def close(self):
        """Ends the engine, and lets it close its files."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Chdb(_Servant):
    """ClickHouse 26 in a process. Its tables need an ENGINE, and its path is a folder."""

    name = "chdb"


class Duckdb(_Servant):
    """DuckDB in a process. Its path is a file."""

    name = "duckdb"


class Sqlite:
    """The SQLite of this Python. Its path is a file."""

    name = "sqlite"
    version = sqlite3.sqlite_version

    def __init__(self, path=":memory:"):
        self.connection = sqlite3.connect(path, isolation_level=None)

    def ask(self, statement):
        """The rows that a statement gives."""
        try:
            return [list(row) for row in self.connection.execute(statement)]
        except sqlite3.Error as error:
            raise Refused(0, str(error)) from None

    def close(self):
        """Closes the file."""
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def main():
    """Fetches all engines, starts each of them, and says how long each step took."""
    since = time.monotonic()

    def say(what):
        nonlocal since
        now = time.monotonic()
        print(f"{what} ({now - since:.1f} s)", flush=True)
        since = time.monotonic()

    say(f"ClickHouse is in {fetch()}")
    say(f"The venv has {venv()}")
    with clickhouse() as servers:
        version = servers[0].ask("SELECT version()")[0][0]
        say(f"{len(servers)} shards of ClickHouse {version} answer")
    say("They are gone")
    for engine in (Chdb, Duckdb, Sqlite):
        with engine() as started:
            assert started.ask("SELECT 1") == [[1]]
            say(f"{started.name} {started.version} answers")


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(f"engines.py: {error}")
