"""Late data choice: messages that have not left the host can still be cancelled, changed or held back.

Times are seconds; deadlines are times of now(), which is that of time.monotonic(). A timeout of None waits without limit.
Data is any object with the buffer protocol, such as bytes, bytearray or memoryview. Sockets are sockets, other objects with a
fileno() or numbers; the descriptor is duplicated, so close your own. An object serves one thread at a time: a second call
meanwhile raises BusyError. Calls that wait release the global interpreter lock.
"""

from types import TracebackType
from typing import Iterator, Literal, Protocol, Self, Sequence, final
from collections.abc import Buffer  # Python 3.12; type checkers know it for older versions as well
from os import PathLike

__version__: str

class _HasFileno(Protocol):
    def fileno(self) -> int: ...

class LdcError(Exception):
    """A call of this module failed."""

class FullError(LdcError):
    """Too few slots of the ring are free: cancel messages, wait, or discard the message."""

class LengthError(LdcError):
    """A message is longer than the ring, the buffer or the message that it replaces."""

class ClosedError(LdcError):
    """The ring is closed, or its drain has ended: finish() says why."""

class GoneError(LdcError):
    """The other process died."""

class UnknownError(LdcError):
    """No such message is in the ring."""

class TooLateError(LdcError):
    """The consumer has claimed the message already."""

class CancelledError(LdcError):
    """The message was cancelled."""

class HeldBackError(LdcError):
    """Messages are held back, and so the ring cannot end: release or cancel them first."""

class CorruptError(LdcError):
    """The other process violated the protocol of the ring."""

class BusyError(LdcError):
    """Another thread is in a call on the same object."""

@final
class Changed:
    """How many messages a call changed."""

    @property
    def changed(self) -> int:
        """Messages changed as requested."""
    @property
    def too_late(self) -> int:
        """Messages that the consumer had already claimed; they are unchanged."""

@final
class State:
    """The state of the ring of a class."""

    @property
    def slots(self) -> int: ...
    @property
    def slot_bytes(self) -> int: ...
    @property
    def free_slots(self) -> int: ...
    @property
    def pending(self) -> int:
        """Messages that were not claimed and not cancelled."""
    @property
    def is_holding_back(self) -> bool: ...
    @property
    def is_closed(self) -> bool:
        """Whether the receiver has closed the ring, or the drain has ended."""
    @property
    def is_attached(self) -> bool:
        """Whether the receiver's end exists."""
    @property
    def has_ended(self) -> bool:
        """Whether the thread of the drain has ended."""

@final
class Stats:
    """Counters of a drain that has ended; those that its kind does not have are 0."""

    @property
    def messages(self) -> int:
        """Messages that left: written, passed to the kernel as datagrams, or, over QUIC, acknowledged."""
    @property
    def bytes(self) -> int: ...
    @property
    def cancelled(self) -> int: ...
    @property
    def expired(self) -> int: ...
    @property
    def acked(self) -> int: ...
    @property
    def acks_lost(self) -> int:
        """Acknowledgements not reported, because poll_ack() did not take earlier ones."""
    @property
    def abandoned(self) -> int:
        """Messages given up after they were claimed (QUIC)."""
    @property
    def refused(self) -> int:
        """Messages that the peer or its host refused."""
    @property
    def too_big(self) -> int:
        """Messages longer than a datagram of the path (UDP)."""
    @property
    def lost_packets(self) -> int:
        """Packets that QUIC found to be lost."""

@final
class Sender:
    """The sending end. As a context manager it finishes at the end of the block, or closes if the block raised."""

    def send(
        self, seq: int, data: Buffer, *, deadline: float | None = None, priority: int = 0, class_index: int = 0
    ) -> None:
        """Copy a message into the ring of its class. Call notify() afterwards, once for many messages.

        FullError, LengthError or ClosedError: nothing was sent."""
    def send_wait(
        self,
        seq: int,
        data: Buffer,
        *,
        deadline: float | None = None,
        priority: int = 0,
        class_index: int = 0,
        timeout: float | None = None,
    ) -> None:
        """As send(), and wait for room if the ring is full. FullError: the timeout expired."""
    def notify(self) -> bool:
        """Wake the receiver if it sleeps, and return whether it did."""
    def cancel(self, seq: int) -> Changed:
        """Cancel the messages with this sequence number that were not claimed."""
    def abandon(self, seq: int) -> Changed:
        """As cancel(), and ask the receiver to stop delivering the messages that it has claimed: QUIC resets their streams."""
    def modify(self, seq: int, offset: int, data: Buffer) -> None:
        """Overwrite a part of the oldest message with this sequence number that was not claimed."""
    def replace(self, seq: int, data: Buffer) -> None:
        """Replace the oldest message with this sequence number that was not claimed, by one of as many slots."""
    def hold_back(self, seq: int | None = None) -> Changed:
        """Hold back the oldest message with this sequence number and all sent after it; None: all that were not claimed."""
    def release(self, until: int | None = None) -> None:
        """End the hold-back; with a sequence number, for the messages sent before it."""
    def poll_ack(self) -> int | None:
        """Return the sequence number of the next acknowledged message, or None."""
    def wait_room(self, slots: int = 1, *, timeout: float | None = None, class_index: int = 0) -> None:
        """Wait until slots of a class are free. TimeoutError: the timeout expired."""
    def state(self, class_index: int = 0) -> State:
        """Return the state of the ring of a class."""
    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the receiver of class 0 has freed slots, closed the ring or died."""
    def pass_to(self, socket: _HasFileno | int) -> None:
        """Pass a ring of shared memory whose receiver died to the process at the other end of a Unix socket."""
    def finish(self, timeout: float | None = None) -> Stats:
        """Close the rings, and wait until all messages have left. TimeoutError: call it again.

        LdcError: the drain ended early. A ring that another thread or process empties is closed, and not waited for."""
    def close(self) -> None:
        """Close the rings and wait for nothing: a thread that drains them continues until all messages have left."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, raised: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> bool: ...

@final
class Message:
    """A message that was received or claimed."""

    @property
    def id(self) -> int | None:
        """Number of a claimed message in calls on its receiver."""
    @property
    def seq(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def deadline(self) -> float | None: ...
    @property
    def priority(self) -> int: ...
    @property
    def data(self) -> bytes | None:
        """The bytes, of a message that receive() returned."""
    def __len__(self) -> int: ...

@final
class Receiver:
    """The receiving end of a ring. Iteration yields messages until the sender closes the ring."""

    def receive(self, timeout: float | None = None) -> Message:
        """Wait for the next message and return it.

        TimeoutError: none has arrived. ClosedError: none will follow. GoneError: the sending process died."""
    def receive_into(self, buffer: Buffer, timeout: float | None = None) -> Message:
        """Wait for the next message and copy it to the start of a writable buffer. LengthError: the message stays."""
    def claim(self, timeout: float | None = None) -> Message:
        """Claim the next message without copying it. Its slots stay in use until complete()."""
    def read(self, id: int, offset: int = 0, length: int | None = None) -> bytes:
        """Return length bytes of a claimed message, from offset on; without a length, all that follow."""
    def is_abandoned(self, id: int) -> bool:
        """Return whether the sender has abandoned a claimed message: stop delivering it, and complete it."""
    def ack(self, id: int) -> None:
        """Tell the sender that a claimed message was acknowledged. FullError: it did not take earlier ones."""
    def complete(self, id: int) -> None:
        """Release the slots of a claimed message."""
    def counters(self) -> tuple[int, int, int]:
        """Return how many messages were claimed, skipped as cancelled, and skipped as expired."""
    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the sender has notified or died, after a wait that timed out."""
    def close(self) -> None:
        """Close the ring: the sender learns of it."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, raised: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> bool: ...
    def __iter__(self) -> Iterator[Message]: ...
    def __next__(self) -> Message: ...

@final
class Event:
    """What happened on the connection of a sender."""

    @property
    def kind(self) -> Literal["connected", "message", "done", "failed"]: ...
    @property
    def data(self) -> bytes | None:
        """The bytes of a message."""
    @property
    def text(self) -> str | None:
        """The address of a sender that connected; why a connection failed."""

@final
class Listener:
    """The receiving end of QUIC connections, of one sender at a time."""

    @property
    def port(self) -> int: ...
    def wait(self, timeout: float | None = None) -> Event:
        """Wait for the next event. TimeoutError: none has happened. Messages not taken stay with QUIC, which holds the sender up."""
    def refuse(self, reason: str) -> None:
        """Close the connection of the sender that is served, with a reason that it sees."""
    def fileno(self) -> int: ...
    def close(self) -> None:
        """Close the connection and the socket."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, raised: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> bool: ...

def now() -> float:
    """Return the time of the clock of deadlines, in seconds: that of time.monotonic()."""

def open_pair(*, slots: int = 64, slot_bytes: int = 1500) -> tuple[Sender, Receiver]:
    """Create a ring for two threads of this process, and return its sender and its receiver."""

def open_shm(socket: _HasFileno | int, *, slots: int = 64, slot_bytes: int = 1500) -> Sender:
    """Create a ring in memory that is shared with the process at the other end of a Unix stream socket, which calls attach()."""

def open_tcp(
    socket: _HasFileno | int,
    *,
    slots: int = 64,
    slot_bytes: int = 1500,
    classes: int = 1,
    weights: Sequence[int] | None = None,
    acks: bool = False,
    unsent_bytes: int | None = None,
) -> Sender:
    """Create rings, one per class, that a thread drains into a connected TCP socket.

    Class 0 goes first, and so on; with weights, classes share the connection, and there are as many as weights. acks: report
    acknowledged messages to poll_ack(). unsent_bytes: fixed limit of unsent bytes in the socket."""

def open_udp(
    socket: _HasFileno | int, *, slots: int = 64, slot_bytes: int = 1500, rate_bps: int | None = None
) -> Sender:
    """Create a ring that a thread drains into a connected UDP socket, a datagram per message."""

def open_quic(
    remote: str,
    key_file: str | PathLike[str],
    *,
    name: str | None = None,
    slots: int = 64,
    slot_bytes: int = 1500,
    classes: int = 1,
    weights: Sequence[int] | None = None,
    acks: bool = False,
    datagrams_below: int = 0,
    stream_per_sequence: bool = False,
    congestion: Literal["cubic", "newreno", "bbr"] = "cubic",
    idle_timeout: float = 30.0,
    linger: float = 30.0,
) -> Sender:
    """Create rings, one per class, that a thread drains into a QUIC connection to an address and a port.

    key_file: a secret of both ends (32 bytes, or 64 hexadecimal digits), or certificates and a key in PEM; then the peer's must be
    for name. Messages below the priority datagrams_below leave as datagrams. The connection is set up meanwhile; if that
    fails, finish() says why."""

def listen(
    local: str,
    key_file: str | PathLike[str],
    *,
    max_message: int = 1048576,
    streams: int = 1024,
    buffer: int = 16777216,
    idle_timeout: float = 30.0,
    setup_timeout: float = 10.0,
) -> Listener:
    """Listen on an address and a port, such as "[::]:0" (any free port)."""

def attach(
    socket: _HasFileno | int, *, max_bytes: int = 67108864, timeout: float | None = None
) -> Receiver:
    """Attach to the ring that the process at the other end of a Unix socket offers. It need not be trusted.

    TimeoutError: no offer has arrived.
    """
