# Runs code in subinterpreters, one after the other, in threads, and (from 3.12 on) with a GIL of
# their own, because each has its own frames, and the small objects of some have other arenas.
import sys
import threading

CODE = """
import json
class C:
    def __init__(self):
        self.data = [bytes(100) for _ in range(50)]
def f(n):
    return [C() for _ in range(n)]
kept = f(20)
text = json.dumps([str(i) * 3 for i in range(500)])
assert len(json.loads(text)) == 500
"""


def modern():
    """The module of 3.13 and later."""
    import _interpreters

    def run(config):
        made = _interpreters.create(config)
        failed = _interpreters.exec(made, CODE)
        failed = failed or _interpreters.exec(made, "f(30); del kept")
        _interpreters.destroy(made)
        return failed is None

    return lambda: run("legacy"), lambda: run("isolated")


def older():
    """The module of 3.8 to 3.12. Up to 3.11 all interpreters share the GIL."""
    import _xxsubinterpreters as interpreters

    def run(**how):
        made = interpreters.create(**how)
        interpreters.run_string(made, CODE)
        interpreters.run_string(made, "f(30); del kept")
        interpreters.destroy(made)
        return True

    if sys.version_info < (3, 9):
        return run, run
    return lambda: run(isolated=False), lambda: run(isolated=True)


def in_thread(run, results):
    try:
        results.append(run())
    except Exception as error:
        results.append(repr(error))


def main():
    try:
        shared, own = modern() if sys.version_info >= (3, 13) else older()
    except ImportError:
        print("none")
        return
    for name, run in (("shared", shared), ("own", own)):
        results = [run() for _ in range(4)]
        print(name, results)
        results = []
        threads = [threading.Thread(target=in_thread, args=(run, results)) for _ in range(4)]
        for thread in threads:
            thread.start()
            # Before 3.12 two of them at once are not safe in Python itself.
            if sys.version_info < (3, 12) or name == "shared":
                thread.join()
        for thread in threads:
            thread.join()
        print(name, "in threads", results)


main()
print("done", flush=True)
sys.exit(12)
