#!/usr/bin/env python3
"""A chat between networks: each line that a member types reaches the members of the same room everywhere.

    chat.py --directory /run/polycast/external --listen 127.0.0.1:7000

Members connect with `nc 127.0.0.1 7000`. Their first line is the name of a room, which is a session of several sources:

    bfed://1/lobby/?multi-source=true

The network in the name owns the room. Lines of other members follow.
"""

import argparse
import asyncio
import time

from polycast_external import DATA, Client

LONGEST_LINE = 1000


class Chat(Client):
    """Rooms, their members, and the channels on which the gateway carries them."""

    def __init__(self, directory):
        super().__init__(directory, name="chat")
        self.members = {}  # Room: writers of its members.
        self.rooms = {}  # (link, channel): room.
        self.open = set()  # (link, channel) on which the gateway wants lines.
        self.until = {}  # Room from elsewhere: when to join again.

    def tell(self, room, line, but=None):
        for member in self.members.get(room, set()) - {but}:
            # A member that does not read loses lines, not our memory.
            if member.transport.get_write_buffer_size() < 1 << 16:
                member.write(line)

    def present(self, link, channel, flow):
        self.rooms[link, channel] = flow["session"]

    def reclaim(self, link, channel):
        self.rooms.pop((link, channel), None)
        self.open.discard((link, channel))

    def subscribe(self, link, channel, flow):
        self.rooms[link, channel] = flow["session"]
        self.open.add((link, channel))

    def unsubscribe(self, link, channel):
        self.open.discard((link, channel))

    def paused(self, link, channel, is_paused):
        (self.open.discard if is_paused else self.open.add)((link, channel))

    def disconnected(self, link):
        self.rooms = {at: room for at, room in self.rooms.items() if at[0] is not link}
        self.open = {at for at in self.open if at[0] is not link}
        self.until = {}

    def data(self, link, channel, payload):
        self.tell(self.rooms.get((link, channel)), payload)

    def answer(self, answer):
        room = answer["session"]
        if "error" in answer:
            self.tell(room, ("* %s: %s\n" % (room, answer["error"])).encode())
            self.until[room] = time.monotonic() + 5
        else:
            self.until[room] = time.monotonic() + answer["lifetime_s"] / 3

    async def refresh(self):
        """Joins the rooms of other networks that have members, again and again."""
        while True:
            for room in self.members:
                own = room.startswith("bfed://%s/" % self.network)
                if self.control and not own and self.until.get(room, 0) < time.monotonic():
                    self.until[room] = time.monotonic() + 5
                    self.join(room)
            await asyncio.sleep(0.2)

    async def member(self, reader, writer):
        """Serves one member."""
        room = None
        try:
            room = (await reader.readline()).decode().strip()
            if not room.startswith("bfed://"):
                writer.write(b"* the first line is a room: bfed://1/lobby/?multi-source=true\n")
                return
            self.members.setdefault(room, set()).add(writer)
            while line := await reader.readline():
                self.tell(room, line, but=writer)
                # A copy: channels open and close while a line is sent.
                for link, channel in list(self.open):
                    if (link, channel) in self.open and self.rooms.get((link, channel)) == room:
                        link.send(DATA, channel, line)
                        await link.writer.drain()
        except (OSError, ValueError):
            pass  # The member is gone, or its line was too long.
        finally:
            writer.close()
            members = self.members.get(room, set())
            members.discard(writer)
            if room in self.members and not members:
                del self.members[room]
                self.leave(room)
                self.until.pop(room, None)


async def main():
    parser = argparse.ArgumentParser(description="Chat between the networks of a federation")
    parser.add_argument("--directory", default="/run/polycast/external", help="network.directory of the gateway")
    parser.add_argument("--listen", default="127.0.0.1:7000", help="where members connect")
    arguments = parser.parse_args()
    chat = Chat(arguments.directory)
    host, _, port = arguments.listen.rpartition(":")
    await asyncio.start_server(chat.member, host, int(port), limit=LONGEST_LINE)
    await asyncio.gather(chat.run(), chat.refresh())


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
