"""The module as Python programs use it."""

import array
import ast
import inspect
import os
import pathlib
import signal
import socket
import sys
import threading
import time
import unittest

import polycast_ldc as ldc

KEY_FILE, STUBS = sys.argv.pop(), sys.argv.pop()


def tcp_pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]


class Rings(unittest.TestCase):
    def test_buffers_of_all_kinds_arrive(self):
        sender, receiver = ldc.open_pair(slots=8, slot_bytes=64)
        kinds = [b"bytes", bytearray(b"bytearray"), memoryview(b"memoryview")[2:], array.array("B", b"array"), b""]
        with sender, receiver:
            for seq, data in enumerate(kinds):
                sender.send(seq, data, deadline=ldc.now() + 60, priority=seq)
            with self.assertRaises(TypeError):
                sender.send(9, "text")
            with self.assertRaises((TypeError, BufferError, ValueError)):
                sender.send(9, array.array("d", [1.0]))
            sender.finish()
            messages = list(receiver)
        self.assertEqual([m.data for m in messages], [bytes(k) for k in kinds])
        self.assertEqual([m.priority for m in messages], list(range(5)))
        self.assertTrue(all(0 < m.deadline - time.monotonic() <= 60 for m in messages))

    def test_messages_change_until_they_are_claimed(self):
        sender, receiver = ldc.open_pair(slots=8, slot_bytes=64)
        for seq in range(4):
            sender.send(seq, b"message %d" % seq)
        sender.send(4, b"late", deadline=0.001)
        first = receiver.claim()
        self.assertEqual(receiver.read(first.id, 8), b"0")
        with self.assertRaises(ldc.LengthError):
            receiver.read(first.id, 8, 2)
        with self.assertRaises(ldc.TooLateError):
            sender.modify(0, 0, b"M")
        self.assertEqual(sender.hold_back(1).changed, 4)
        with self.assertRaises(TimeoutError):
            receiver.receive(0)
        self.assertEqual(sender.cancel(1).changed, 1)
        sender.modify(2, 0, bytearray(b"M"))
        sender.replace(3, b"third")
        with self.assertRaises(ldc.CancelledError):
            sender.modify(1, 0, b"M")
        with self.assertRaises(ldc.LengthError):
            sender.modify(2, 60, b"12345678")
        with self.assertRaises(ldc.UnknownError):
            sender.replace(77, b"")
        with self.assertRaises(ldc.HeldBackError):
            sender.finish()
        with self.assertRaises(ldc.UnknownError):
            sender.release(until=77)
        sender.release(until=3)
        buffer = bytearray(16)
        with self.assertRaises(ldc.LengthError):
            receiver.receive_into(bytearray(2))
        with self.assertRaises(ValueError):
            receiver.receive_into(b"read-only, long enough")
        with self.assertRaises(ValueError):
            receiver.receive_into(memoryview(bytearray(64))[::2])
        message = receiver.receive_into(buffer)
        self.assertEqual(bytes(buffer[: len(message)]), b"Message 2")
        state = sender.state()
        self.assertTrue(state.is_holding_back and state.is_attached and not state.is_closed)
        self.assertEqual((state.slots, state.slot_bytes, state.pending), (8, 64, 2))
        self.assertEqual(sender.abandon(0).too_late, 1)
        self.assertTrue(receiver.is_abandoned(first.id))
        self.assertIsNone(sender.poll_ack())
        receiver.ack(first.id)
        self.assertEqual(sender.poll_ack(), 0)
        receiver.complete(first.id)
        for call in (receiver.complete, receiver.ack, receiver.read, receiver.is_abandoned):
            with self.assertRaises(ldc.UnknownError):
                call(first.id)
        sender.release()
        sender.close()
        self.assertEqual([m.data for m in receiver], [b"third"])
        self.assertEqual(receiver.counters(), (3, 1, 1))
        for call in (sender.notify, sender.finish):
            with self.assertRaises(ldc.ClosedError):
                call()

    def test_arguments_are_checked(self):
        for arguments in ({"slots": 0}, {"slots": 1 << 30}, {"slot_bytes": 0}):
            with self.assertRaises(ValueError):
                ldc.open_pair(**arguments)
        sender, receiver = ldc.open_pair()
        for arguments in ({"class_index": 1}, {"deadline": float("nan")}):
            with self.assertRaises(ValueError):
                sender.send(1, b"", **arguments)
        with self.assertRaises(ValueError):
            receiver.receive(float("nan"))
        with self.assertRaises(OverflowError):
            sender.send(-1, b"")
        for number in (-1, 1 << 20):
            with self.assertRaises(OSError):
                ldc.open_tcp(number)
        with self.assertRaises(AttributeError):
            ldc.open_tcp(object())

    def test_waits_release_the_interpreter_and_refuse_a_second_thread(self):
        sender, receiver = ldc.open_pair(slots=1, slot_bytes=64)
        got, waiting = [], threading.Event()

        def wait():
            waiting.set()
            got.append(receiver.receive().data)

        thread = threading.Thread(target=wait)
        thread.start()
        waiting.wait()
        # Until the thread is in the call; it holds the object then, and not the interpreter.
        while True:
            try:
                receiver.counters()
            except ldc.BusyError:
                break
        sender.send(1, b"at last")
        sender.notify()
        thread.join()
        self.assertEqual(got, [b"at last"])
        sender.send(2, b"fills the ring")
        with self.assertRaises(ldc.FullError):
            sender.send(3, b"")
        with self.assertRaises(ldc.FullError):
            sender.send_wait(3, b"", timeout=0.01)
        with self.assertRaises(TimeoutError):
            sender.wait_room(timeout=0.01)
        receiver.receive()
        sender.wait_room()

    def test_a_signal_ends_a_wait(self):
        _, receiver = ldc.open_pair()
        main = threading.main_thread().ident

        def handler(*_):
            raise InterruptedError("the handler ran")

        signal.signal(signal.SIGUSR1, handler)
        threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGUSR1)).start()
        sender = _
        with self.assertRaises(InterruptedError):
            receiver.receive()
        sender.close()

    def test_a_signal_ends_a_wait_for_an_offer(self):
        ours, theirs = socket.socketpair()
        main = threading.main_thread().ident

        def handler(*_):
            raise InterruptedError("the handler ran")

        with ours, theirs:
            with self.assertRaises(TimeoutError):
                ldc.attach(ours, timeout=0.01)
            # Half an offer, from a peer that then says nothing, on a socket of either mode.
            for timeout in (None, 60):
                theirs.sendall(b"LDCm")
                ours.settimeout(timeout)
                signal.signal(signal.SIGUSR1, handler)
                threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGUSR1)).start()
                with self.assertRaises(InterruptedError):
                    ldc.attach(ours)
            theirs.shutdown(socket.SHUT_WR)
            with self.assertRaises(ldc.GoneError):
                ldc.attach(ours)

    def test_two_processes_share_a_ring(self):
        ours, theirs = socket.socketpair()
        child = os.fork()
        if child == 0:
            ours.close()
            with ldc.attach(theirs, timeout=60) as receiver:
                theirs.close()
                data = [message.data for message in receiver]
            os._exit(0 if data == [b"one", b"two"] else 1)
        theirs.close()
        with ldc.open_shm(ours, slots=8) as sender:
            ours.close()
            sender.send(1, b"one")
            sender.send_wait(2, b"two")
            sender.notify()
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_the_death_of_the_sender_is_known(self):
        ours, theirs = socket.socketpair()
        child = os.fork()
        if child == 0:
            ours.close()
            sender = ldc.open_shm(theirs, slots=8)
            sender.send(1, b"last words")
            os._exit(0)
        theirs.close()
        receiver = ldc.attach(ours)
        ours.close()
        self.assertEqual(receiver.receive().data, b"last words")
        with self.assertRaises(ldc.GoneError):
            receiver.receive()
        os.waitpid(child, 0)


class Sockets(unittest.TestCase):
    def test_tcp_with_classes(self):
        ours, theirs = tcp_pair()
        with ours, theirs:
            with ldc.open_tcp(ours, classes=2, acks=True) as sender:
                sender.send(1, b"second", class_index=1)
                cancelled = sender.cancel(1).changed
                sender.send(2, b"first")
                stats = sender.finish()
            ours.close()
            expected = {b"first"} if cancelled else {b"secondfirst", b"firstsecond"}
            self.assertIn(theirs.makefile("rb").read(), expected)
            self.assertEqual((stats.messages, stats.acked, stats.cancelled), (2 - cancelled, 2 - cancelled, cancelled))
            self.assertEqual(sender_closed(sender), True)

    def test_an_exception_closes_and_waits_for_nothing(self):
        ours, theirs = tcp_pair()
        with ours, theirs, self.assertRaises(KeyError):
            with ldc.open_tcp(ours, weights=[2, 1]) as sender:
                sender.send(1, b"x")
                sender.hold_back()
                raise KeyError
        self.assertTrue(sender_closed(sender))

    def test_a_peer_that_goes_is_an_error_of_finish(self):
        ours, theirs = tcp_pair()
        sender = ldc.open_tcp(ours, slots=64, slot_bytes=1 << 16)
        for seq in range(64):
            sender.send(seq, bytes(1 << 16))
        with self.assertRaises(TimeoutError):
            sender.finish(0.01)
        theirs.close()
        with self.assertRaisesRegex(ldc.LdcError, "closed the connection"):
            sender.finish()

    def test_udp(self):
        with socket.socket(type=socket.SOCK_DGRAM) as theirs, socket.socket(type=socket.SOCK_DGRAM) as ours:
            theirs.bind(("127.0.0.1", 0))
            ours.connect(theirs.getsockname())
            with ldc.open_udp(ours, rate_bps=100_000_000) as sender:
                sender.send(1, b"datagram")
                self.assertEqual(sender.finish().messages, 1)
            self.assertEqual(theirs.recv(100), b"datagram")

    def test_quic(self):
        with self.assertRaisesRegex(ldc.LdcError, "/nonexistent"):
            ldc.listen("127.0.0.1:0", "/nonexistent")
        with self.assertRaises(ValueError):
            ldc.listen("localhost", KEY_FILE)
        with ldc.listen("127.0.0.1:0", pathlib.Path(KEY_FILE)) as listener:
            remote = f"127.0.0.1:{listener.port}"
            with self.assertRaises(ValueError):
                ldc.open_quic(remote, KEY_FILE, congestion="none")
            with self.assertRaises(TimeoutError):
                listener.wait(0)
            sender = ldc.open_quic(remote, KEY_FILE, acks=True, slots=64)
            sender.send(5, b"over QUIC")
            sender.notify()
            result = []
            thread = threading.Thread(target=lambda: result.append(sender.finish()))
            thread.start()
            kinds = []
            while kinds[-1:] != ["done"]:
                event = listener.wait()
                kinds.append(event.kind)
                if event.kind == "message":
                    self.assertEqual(event.data, b"over QUIC")
                self.assertNotEqual(event.kind, "failed", event.text)
            thread.join()
            self.assertEqual(kinds, ["connected", "message", "done"])
            self.assertEqual(result[0].acked, 1)
        with self.assertRaises(ldc.ClosedError):
            listener.port


def sender_closed(sender):
    try:
        sender.notify()
    except ldc.ClosedError:
        return True
    return False


class Stubs(unittest.TestCase):
    """The stubs name what the module has: no more, no less, with the same parameters."""

    def test_names_and_parameters(self):
        tree = ast.parse(pathlib.Path(STUBS).read_text())
        stubs = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        public = {name for name in dir(ldc) if not name.startswith("_")}
        self.assertEqual({name for name in stubs if not name.startswith("_")}, public)
        for name in public:
            thing, stub = getattr(ldc, name), stubs[name]
            self.assertTrue(inspect.getdoc(thing), name)
            if isinstance(stub, ast.FunctionDef):
                self.same(name, thing, stub)
            elif not issubclass(thing, Exception):
                methods = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
                have = {key for key in vars(thing) if not key.startswith("_")}
                self.assertEqual({key for key in methods if not key.startswith("_")}, have, name)
                for key in have:
                    if callable(getattr(thing, key)):
                        self.same(f"{name}.{key}", getattr(thing, key), methods[key])

    def same(self, name, thing, stub):
        have = [p for p in inspect.signature(thing).parameters]
        arguments = stub.args.posonlyargs + stub.args.args + stub.args.kwonlyargs
        self.assertEqual([a.arg for a in arguments], have, name)


if __name__ == "__main__":
    unittest.main()
