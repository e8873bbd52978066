# A pool of multiprocessing whose task remembers its results for ever. usage: pool.py COUNT
import multiprocessing
import sys

import visits


def visit(number):
    return visits.handle(number, "pool")


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for part in range(2):
            print(pool.map(visit, range(int(sys.argv[1])), 10), flush=True)
            # Somebody looks at the workers, and says when the pool may go on.
            sys.stdin.readline()
        pool.close()
        pool.join()
