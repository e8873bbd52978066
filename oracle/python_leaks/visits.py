# What a handler of these servers calls: the leak is the cache in remember(), which nobody empties.
import hashlib
import os

CACHE = {}


def handle(number, agent):
    return describe({"number": number, "agent": agent, "words": words(number)})


def words(number):
    # This is garbage after each request, and ten times as much as what leaks.
    return [hashlib.md5(b"%d %d" % (number, i)).hexdigest() * 8 for i in range(60)]


def describe(visit):
    digest = hashlib.sha1("".join(visit["words"]).encode()).hexdigest()
    remember(visit["number"], digest)
    return digest


def remember(number, digest):
    text = digest * (5 + number % 96)  # planted: 200 to 4,000 bytes
    CACHE[number, os.urandom(4)] = text
