# Leaves generators, coroutines and tasks unfinished at the end, because Python runs their last
# lines while it takes itself down.
import asyncio
import os
import sys
import warnings

warnings.simplefilter("ignore")


# Tasks are cancelled in no certain order.
cancelled = []


def say(text):
    os.write(1, (text + "\n").encode())


def generator(name):
    held = [bytes(200)]
    try:
        while True:
            held.append(bytes(len(held)))
            yield len(held)
    finally:
        held.append([bytes(i) for i in range(1, 900, 100)])
        say("closed %s %d" % (name, len(held)))


async def agen(name):
    try:
        for i in range(1000):
            yield [i] * 100
            await asyncio.sleep(0)
    finally:
        block = [bytes(700)] * 3
        say("closed %s %d" % (name, len(block)))


async def waiting(name):
    block = {"name": name, "data": [bytes(100)] * 10}
    try:
        await asyncio.sleep(1000)
    finally:
        cancelled.append((block["name"], len([bytes(i) for i in range(300)])))


async def main():
    # Development mode warns of slow steps.
    asyncio.get_event_loop().slow_callback_duration = 60
    tasks = [asyncio.ensure_future(waiting("task %d" % i)) for i in range(3)]
    unfinished = agen("agen in main")
    async for block in unfinished:
        if block[0] > 5:
            break
    await asyncio.gather(*(asyncio.sleep(0.001 * (i % 5)) for i in range(300)))
    # They are garbage, with frames inside.
    for i in range(50):
        step = generator("short")
        step.send(None) if i == 0 else None
        del step
    return len(tasks)


print("tasks", asyncio.run(main()), sorted(cancelled), flush=True)
loop = asyncio.new_event_loop()
pending = loop.create_task(waiting("never run"))
half = generator("half")
print("half", next(half), next(half), flush=True)
module_agen = agen("never begun")
never_awaited = waiting("never awaited")
deep = generator("of a cycle")
next(deep)
cycle = [deep]
cycle.append(cycle)
async_half = agen("async half")
try:
    async_half.__anext__().send(None)
except StopIteration as stop:
    print("async half", len(stop.value), flush=True)
sys.stdout.flush()
# What is left is closed in an order that differs between versions, so none of it is said.
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
os.dup2(1, 2)
sys.exit(13)
