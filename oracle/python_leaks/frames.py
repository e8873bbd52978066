# Reads a CSV file in chunks with pandas, and keeps a small view of each large frame, which keeps
# the frame. usage: frames.py FILE [ROWS]; with
# ROWS it writes the file instead.
import sys

import numpy
import pandas

EXAMPLES = []


def write(path, rows):
    random = numpy.random.RandomState(7)
    data = {"shop": random.randint(0, 50, rows), "item": random.randint(0, 9, rows)}
    data.update(("v%d" % i, random.rand(rows).round(4)) for i in range(6))
    pandas.DataFrame(data).to_csv(path, index=False)


def widen(chunk):
    values = chunk.drop(columns=["shop", "item"]).to_numpy()
    return numpy.concatenate([values, values * 2, numpy.sqrt(values)], axis=1)  # planted


def summarize(chunk, totals):
    wide = widen(chunk)
    frame = pandas.DataFrame(wide, copy=False)
    EXAMPLES.append(frame.iloc[:3])
    for shop, total in chunk.groupby("shop")["v0"].sum().items():
        totals[shop] = totals.get(shop, 0) + total
    return float(wide.sum())


def main(path):
    totals, wide = {}, 0.0
    for chunk in pandas.read_csv(path, chunksize=2000):
        wide += summarize(chunk, totals)
    print(len(totals), round(sum(totals.values()), 3), round(wide, 2), len(EXAMPLES))


if len(sys.argv) > 2:
    write(sys.argv[1], int(sys.argv[2]))
else:
    main(sys.argv[1])
