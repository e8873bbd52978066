# An application that loads much before gunicorn forks its workers, which copy it, because they
# count references to it, or because the garbage collector looks at it.
import gc
import os

CATALOGUE = []


def load(count):
    for number in range(count):
        CATALOGUE.append(product(number))


def product(number):
    name = "product %d" % number  # planted
    return {"name": name, "tags": [name.upper() for _ in range(3)]}


def total():
    # It only reads.
    return sum(len(item["name"]) + len(item["tags"]) for item in CATALOGUE)


load(60000)


def app(environ, start_response):
    number = environ["PATH_INFO"].rsplit("/", 1)[1]
    work = os.environ.get("LEAKS_WORK")
    if work == "collect":
        gc.collect()
    body = b"%d %s" % (total() if work == "read" else 0, number.encode())
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
