"""The client's side of an external network of bfed-gateway, for asyncio.

docs/manual/external-networks.md describes the protocol. A program derives a class from Client, and runs it:

    class Island(Client):
        def present(self, link, channel, flow): ...
        def data(self, link, channel, payload): ...

    asyncio.run(Island("/run/polycast/external").run())

Only the standard library is needed.
"""

import asyncio
import glob
import json
import os
import struct
import sys

HEADER = struct.Struct(">IB3xQ")
VERSION = 1
HELLO, PING, PONG, ERROR = 1, 2, 3, 4
LEND, PRESENT, RECLAIM, SUBSCRIBE, REFRESH, UNSUBSCRIBE, PAUSE, RESUME, DATA = range(16, 25)
JOIN, LEAVE, ANSWER = 32, 33, 34


class Link:
    """A connection to one socket of the gateway."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.hello = {}

    def send(self, kind, channel=0, body=b""):
        """Sends a frame; a body that is not bytes becomes JSON."""
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self.writer.write(HEADER.pack(len(body), kind, channel) + body)

    async def receive(self):
        """Returns the type, the channel and the body of the next frame."""
        length, kind, channel = HEADER.unpack(await self.reader.readexactly(HEADER.size))
        body = await self.reader.readexactly(length)
        if kind == DATA or not body:
            return kind, channel, body
        return kind, channel, json.loads(body)


class Client:
    """Connects to all sockets of a directory, and again when a connection ends."""

    def __init__(self, directory, name="client", lend=16):
        self.directory, self.name, self.lend = directory, name, lend
        self.control = None  # The link to the control node, while there is one.
        self.network = None  # Number of the own network.

    # What a derived class overrides.
    def connected(self, link):
        """The gateway has greeted; link.hello["role"] is "control" or "data"."""

    def disconnected(self, link):
        """The connection has ended. Channels come again, with "resumed", after the next connected()."""

    def present(self, link, channel, flow):
        """A session from elsewhere has the lent address flow["address"]; its data follows."""

    def reclaim(self, link, channel):
        """The session is over; its address was lent again."""

    def subscribe(self, link, channel, flow):
        """Send the data of flow["session"] on the channel from now on."""

    def unsubscribe(self, link, channel):
        """Send no more on the channel."""

    def paused(self, link, channel, is_paused):
        """The receivers of the channel cannot keep up, or can again."""

    def data(self, link, channel, payload):
        """Data of a session from elsewhere."""

    def answer(self, answer):
        """The answer to join(): "addresses" and "lifetime_s", or "error"."""

    # What it calls.
    def join(self, session, token=None):
        """Asks for a session; ask again within "lifetime_s" of the answer."""
        if self.control:
            self.control.send(JOIN, 0, {"session": session, "token": token})

    def leave(self, session):
        """No member wants the session any more."""
        if self.control:
            self.control.send(LEAVE, 0, {"session": session})

    async def run(self):
        """Runs until it is cancelled."""
        tasks = {}
        while True:
            for path in glob.glob(os.path.join(self.directory, "*.sock")):
                if path not in tasks or tasks[path].done():
                    tasks[path] = asyncio.ensure_future(self._serve(path))
            await asyncio.sleep(0.2)

    async def _serve(self, path):
        try:
            link = Link(*await asyncio.open_unix_connection(path))
        except OSError:
            return  # The gateway is not there yet.
        try:
            link.send(HELLO, 0, {"version": VERSION, "name": self.name})
            while True:
                self._handle(link, *await link.receive())
                await link.writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            link.writer.close()
            if self.control is link:
                self.control = None
            if link.hello:
                self.disconnected(link)

    def _handle(self, link, kind, channel, body):
        if kind == HELLO:
            link.hello, self.network = body, body["network"]
            if body["role"] == "control":
                self.control = link
            else:
                part = body["part"]
                names = ["%s %d.%d" % (self.name, part, n) for n in range(self.lend)]
                link.send(LEND, 0, {"addresses": names})
            self.connected(link)
        elif kind == PING:
            link.send(PONG, channel)
        elif kind == PRESENT:
            self.present(link, channel, body)
        elif kind == RECLAIM:
            self.reclaim(link, channel)
            link.send(LEND, 0, {"addresses": [body["address"]]})
        elif kind == SUBSCRIBE:
            self.subscribe(link, channel, body)
        elif kind == UNSUBSCRIBE:
            self.unsubscribe(link, channel)
        elif kind in (PAUSE, RESUME):
            self.paused(link, channel, kind == PAUSE)
        elif kind == DATA:
            self.data(link, channel, body)
        elif kind == ANSWER:
            self.answer(body)
        elif kind == ERROR:
            print("gateway: %s" % body["error"], file=sys.stderr)
