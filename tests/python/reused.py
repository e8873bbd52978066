# Makes functions by exec, each of which allocates and is dropped, so that the next one's code lies
# where the last one's was. usage: reused.py EXPECTED FUNCTIONS
import sys

from expected import check, done


def one(i):
    names = {"check": check}
    exec("def f%d():\n%s    check()\n" % (i, "\n" * (i % 50)), names)
    names["f%d" % i]()


for i in range(int(sys.argv[2])):
    one(i)
done()
