"""Send a stream in layers over TCP, then cancel one layer that has not left and replace another."""

import socket

import polycast_ldc as ldc

with socket.create_server(("127.0.0.1", 0)) as server:
    ours = socket.create_connection(server.getsockname())
    theirs, _ = server.accept()

# Two classes: the base layer overtakes the others.
with ldc.open_tcp(ours, slots=64, slot_bytes=1500, classes=2) as sender:
    # The library has a copy of the descriptor, so the stream ends when both are closed.
    ours.close()
    sender.send(0, b"base ")
    for layer in (1, 2, 3):
        sender.send(layer, b"layer %d " % layer, class_index=1)
    # The link is too slow: layer 3 is given up, and layer 2 becomes smaller, unless they have left.
    print("layer 3:", sender.cancel(3))
    try:
        sender.replace(2, b"small ")
        print("layer 2: replaced")
    except ldc.LdcError as error:
        print("layer 2:", error)
    sender.notify()
    stats = sender.finish()

print("sent:", stats.messages, "messages,", stats.cancelled, "cancelled")
print("received:", theirs.makefile("rb").read().decode())
