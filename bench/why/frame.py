# Reads a table of a million rows by pandas, and keeps it.
import sys

import pandas


def load(name):
    return pandas.read_csv(name)


frame = load(sys.argv[1])
print("ready", flush=True)
sys.stdin.read(1)
sys.exit(len(frame) != 1000000)
