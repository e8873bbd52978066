# A server with asyncio that keeps a task and its request for ever in each second request. usage:
# server.py PORT
import asyncio
import signal
import sys

import visits

WAITING = set()


async def settle(number, body):
    # Nobody sets this event.
    event = asyncio.Event()
    await event.wait()
    return number, body


async def route(line):
    number = int(line.split()[1].rsplit(b"/", 1)[1])
    text = "".join(visits.words(number))[: 2000 + number % 500]
    if number % 2:
        await keep(number, text)
    return "%d %s" % (number, text)


async def keep(number, text):
    body = text.encode() + b"!"  # planted
    WAITING.add(asyncio.ensure_future(settle(number, body)))
    await asyncio.sleep(0)


async def serve(reader, writer):
    line = await reader.readline()
    while (await reader.readline()).strip():
        pass
    if not line:
        # Somebody only looked whether it listens.
        writer.close()
        return
    answer = (await route(line)).encode()
    writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
    await writer.drain()
    writer.close()


async def main(port):
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await stop.wait()
    server.close()
    print("kept", len(WAITING))


asyncio.run(main(int(sys.argv[1])))
