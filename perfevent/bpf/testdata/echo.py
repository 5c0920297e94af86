# SPDX-License-Identifier: Apache-2.0
"""An echo over TCP, IPv4 and IPv6; each wait for data is told in one line:

    sender_tid receiver_tid begin_ns end_ns bytes
"""

import socket
import sys
import threading
import time

SIZES = [32, 1000, 40000] * 20
ADDRESSES = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]

print("ready", flush=True)
sys.stdin.readline()


def serve(listener, tids, sent):
    tids.append(threading.get_native_id())
    connection, _ = listener.accept()
    for size in SIZES:
        connection.recv(size, socket.MSG_WAITALL)
        time.sleep(0.002)  # the client is asleep by then
        sent.append(time.monotonic_ns())
        connection.sendall(b"x" * size)


for family, address in ADDRESSES:
    listener = socket.socket(family)
    listener.bind((address, 0))
    listener.listen()
    tids, sent = [], []
    thread = threading.Thread(target=serve, args=(listener, tids, sent))
    thread.start()
    client = socket.socket(family)
    client.connect(listener.getsockname()[:2])
    for i, size in enumerate(SIZES):
        client.sendall(b"y" * size)
        client.recv(size, socket.MSG_WAITALL)
        print(tids[0], threading.get_native_id(), sent[i], time.monotonic_ns(), size, flush=True)
    thread.join()
