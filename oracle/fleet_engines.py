#!/usr/bin/env python3
"""Compares top, diff and growth of a fleet between SQLite, Parquet, ClickHouse, chdb and DuckDB.

usage: oracle/fleet_engines.py [--quick] HEAPPROF FLEET [DB]

FLEET is a folder of bench/gen_fleet.py. DB is a database that has it, which saves loading it. The
binary must have the features parquet and clickhouse; with datafusion, --from asks DataFusion.
With --quick only SQLite, Parquet and DuckDB are compared, and parquet is enough.

Two kinds of answers are compared row by row: what heapprof shows of each store, and the rows of the
one statement that --show-sql prints, from each engine. Then every batch is written a second time,
and a server is killed in the middle of a load: no answer may change.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import engines

IS_QUICK = "--quick" in sys.argv
HEAPPROF, FLEET, *MORE = [word for word in sys.argv[1:] if word != "--quick"]
SERVICE = "shop" if IS_QUICK else "svc0"
LAST = f"service={SERVICE}"
FIRST = f"service={SERVICE},until=2026-11-20T" + ("09:05:00Z" if IS_QUICK else "00:05:00Z")
QUESTIONS = {
    "top": ["top", "--all-code", "-n", "20", LAST],
    "top of all": ["top", "--all-code", "-n", "0", "service~s"],
    "top of objects": ["top", "--all-code", "-n", "20", "-t", "inuse_objects", "host~h00|web1"],
    "diff": ["diff", "--all-code", "-n", "20", FIRST, LAST],
    "growth": ["growth", "-n", "0", LAST],
}


def heapprof(store, *words, **more):
    """Runs heapprof and returns what it prints, and how long it took."""
    begin = time.monotonic()
    env = os.environ | {"HEAPPROF_STORE_PASSWORD": engines.PASSWORD}
    done = subprocess.run(
        [HEAPPROF, *store, *words], capture_output=True, text=True, env=env, **more
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    return done.stdout, time.monotonic() - begin


def rows(text):
    """The rows of a report, without what no statement can say."""
    report = json.loads(text)
    return report["rows"], report.get("totals")


def statement(store, words):
    """The one statement that --show-sql prints."""
    text, _ = heapprof(store, *words, "--show-sql")
    marks = "-- The same in one statement"
    return text[text.index(marks) :].split("\n", 1)[1].rstrip().rstrip(";")


def plain(of):
    """Rows as they may be compared: whole numbers and texts."""
    return [[int(cell) if not isinstance(cell, str) else cell for cell in row] for row in of]


def shown(question, text):
    """What heapprof shows, as the rows of the statement."""
    found = rows(text)[0]
    if question.startswith("top"):
        cells = [[r["function"], r["flat"], r["cum"], r["file"]] for r in found]
        return [row for row in cells if row[1] or row[2]]
    return [
        [r["function"], r["flat"]["before"], r["flat"]["after"], r["cum"]["before"], r["cum"]["after"]]
        if "flat" in r
        else r
        for r in found
    ]


def compare(what, answers):
    """Fails if two answers differ."""
    (first, expected), *others = answers.items()
    for name, answer in others:
        if answer != expected:
            for a, b in zip(expected, answer):
                if a != b:
                    raise SystemExit(f"{what}: {first} has {a}, {name} has {b}")
            raise SystemExit(f"{what}: {first} has {len(expected)}, {name} has {len(answer)}")


def tables(folder):
    """Views of the exported files, for an engine that reads Parquet."""
    names = sorted(p.stem for p in next(folder.glob("batch-*")).iterdir())
    return {name: f"{folder}/batch-*/{name}.parquet" for name in names}


def quick(db, folder):
    """Compares SQLite, the exported files, and DuckDB's answers to the printed statements."""
    stores = {"SQLite": ["--db", db], "Parquet": ["--from", str(folder)]}
    again = f"{folder}.db"
    heapprof(["--db", again], "import", str(folder))
    stores["imported"] = ["--db", again]
    for question, words in QUESTIONS.items():
        answers = {name: rows(heapprof(of, *words, "-f", "json")[0]) for name, of in stores.items()}
        compare(question, answers)
    engines.PYPI = ["duckdb"]
    engines.ENGINES = pathlib.Path("/tmp/heapprof-duckdb")
    with engines.Duckdb() as duckdb:
        for name, files in tables(folder).items():
            duckdb.ask(f"CREATE VIEW \"{name}\" AS SELECT * FROM read_parquet('{files}')")
        for question, words in QUESTIONS.items():
            sql = statement(stores["SQLite"], words)
            own = json.loads(heapprof(stores["SQLite"], "sql", "-f", "json", sql)[0])
            answers = {
                "SQLite": plain([list(row.values()) for row in own]),
                "DuckDB": plain(duckdb.ask(sql)),
            }
            if question.startswith("top"):
                text, _ = heapprof(stores["SQLite"], *words, "-f", "json")
                answers["heapprof"] = shown(question, text)
            compare(f"the statement of {question}", answers)
            print(f"{question}: {len(own)} rows, equal from {', '.join(answers)}, and as reports")


def main():
    work = pathlib.Path(tempfile.mkdtemp(prefix="heapprof-fleet-"))
    db = MORE[0] if MORE else f"{work}/fleet.db"
    if not os.path.exists(db):
        _, took = heapprof(["--db", db], "load", FLEET)
        print(f"loaded into SQLite in {took:.1f} s")
    samples = heapprof(["--db", db], "sql", "-f", "csv", "SELECT sum(samples) FROM profile")
    samples = int(samples[0].split()[1])
    folder = work / "parquet"
    _, took = heapprof(["--db", db], "export", "--parquet", str(folder))
    size = sum(p.stat().st_size for p in folder.rglob("*.parquet"))
    print(f"{samples} samples; SQLite {os.path.getsize(db) / samples:.1f} B a sample, "
          f"Parquet {size / samples:.1f} B, exported in {took:.1f} s")
    if IS_QUICK:
        return quick(db, folder)
    with engines.clickhouse(2, "heap") as servers, engines.Duckdb() as duckdb, engines.Chdb() as chdb:
        hosts = ",".join(f"127.0.0.1:{server.http}" for server in servers)
        address = f"clickhouse://{hosts}/heap?cluster=heapprof"
        stores = {
            "SQLite": ["--db", db],
            "Parquet": ["--from", str(folder)],
            "ClickHouse": ["--store", address],
        }
        _, took = heapprof(stores["ClickHouse"], "load", FLEET)
        stored = sum(
            int(server.ask("SELECT sum(bytes_on_disk) FROM system.parts WHERE active "
                           "AND database = 'heap'")[0][0])
            for server in servers
        )
        print(f"loaded into ClickHouse in {took:.1f} s ({samples / took / 1000:.0f} k samples/s), "
              f"{stored / samples:.1f} B a sample")
        for name, files in tables(folder).items():
            duckdb.ask(f"CREATE VIEW \"{name}\" AS SELECT * FROM read_parquet('{files}')")
            chdb.ask(f"CREATE VIEW \"{name}\" AS SELECT * FROM file('{files}', Parquet)")

        def all_equal(which):
            for question, words in QUESTIONS.items():
                answers, times = {}, {}
                for name in which:
                    text, times[name] = heapprof(stores[name], *words, "-f", "json")
                    answers[name] = rows(text)
                compare(question, answers)
                print(f"{question}: equal from {', '.join(f'{n} {t:.2f} s' for n, t in times.items())}")

        def ask_heapprof(store):
            return lambda sql: json.loads(heapprof(store, "sql", "-f", "json", sql)[0])

        def ask_server(server, database):
            return lambda sql: server.ask(sql, database=database, max_query_size=1 << 20)

        def all_statements_equal(asked):
            for question, words in QUESTIONS.items():
                sql = statement(stores["SQLite"], words)
                answers, times = {}, {}
                for name, ask in asked.items():
                    begin = time.monotonic()
                    answer = ask(sql)
                    times[name] = time.monotonic() - begin
                    if answer and isinstance(answer[0], dict):
                        answer = [list(row.values()) for row in answer]
                    answers[name] = plain(answer)
                if question.startswith("top"):
                    found = heapprof(stores["SQLite"], *words, "-f", "json")[0]
                    answers["heapprof"] = shown(question, found)
                compare(f"the statement of {question}", answers)
                print(f"the statement of {question}: {len(answers['SQLite'])} rows, equal from "
                      f"{', '.join(f'{n} {t:.2f} s' for n, t in times.items())}")

        all_equal(stores)
        servers_asked = {
            "SQLite": ask_heapprof(stores["SQLite"]),
            "ClickHouse": ask_server(servers[0], "heap"),
            "its second shard": ask_server(servers[1], "heap"),
        }
        all_statements_equal(servers_asked | {
            "--from": ask_heapprof(stores["Parquet"]),
            "DuckDB": duckdb.ask,
            "chdb": lambda sql: chdb.ask(sql + " SETTINGS max_query_size = 1000000"),
        })

        # Everything once more, as if no answer had come: the rows are there twice.
        for server in servers:
            for table in ["heap_sample_shard", "heap_spread_shard", "other_sample_shard",
                          "stack_function", "function", "stack_location",
                          "profile", "profile_total", "location", "line", "label", "mapping",
                          "sample_type", "profile_label", "profile_mapping", "comment"]:
                server.query(f'INSERT INTO heap."{table}" SELECT * FROM heap."{table}"')
        all_equal(["SQLite", "ClickHouse"])
        all_statements_equal(servers_asked)
        print("written twice: the same answers")

        # A server that dies in the middle of a load.
        half = f"clickhouse://{hosts}/half?cluster=heapprof"
        env = os.environ | {"HEAPPROF_STORE_PASSWORD": engines.PASSWORD}
        load = [HEAPPROF, "--store", half, "load", FLEET]
        failed = subprocess.Popen(load, env=env, stderr=subprocess.PIPE, text=True)
        time.sleep(6)
        servers[1].kill()
        said = failed.communicate()[1].strip().splitlines()[-1]
        assert failed.returncode == 2, failed.returncode
        print(f"killed: {said[:160]}")
        servers[1].start()
        before = int(servers[0].ask("SELECT uniqExact(id) FROM half.profile")[0][0])
        _, took = heapprof(["--store", half], "load", FLEET)
        stores["half"] = ["--store", half]
        all_equal(["SQLite", "half"])
        all_statements_equal({
            "SQLite": servers_asked["SQLite"],
            "ClickHouse": ask_server(servers[0], "half"),
            "its second shard": ask_server(servers[1], "half"),
        })
        print(f"{before} profiles were acknowledged before; the second load took {took:.1f} s")


if __name__ == "__main__":
    main()
