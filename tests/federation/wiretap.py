"""Listening on the way between sites and a server."""

import contextlib
import socket
import threading


@contextlib.contextmanager
def recorded(port):
    """A port that leads to the given one, and the bytes of each connection and direction."""
    heard, threads = [], []
    with socket.create_server(("127.0.0.1", 0)) as server:
        threads.append(threading.Thread(target=_accept, args=(server, port, heard, threads)))
        threads[0].start()
        try:
            yield server.getsockname()[1], heard
        finally:
            server.shutdown(socket.SHUT_RDWR)  # wakes who waits for a connection
            for thread in threads:  # the first one ends first: no others are added then
                thread.join()


def _accept(server, port, heard, threads):
    with contextlib.suppress(OSError):  # closed: the test is over
        while True:
            one, _ = server.accept()
            try:
                other = socket.create_connection(("127.0.0.1", port))
            except OSError:
                one.close()
                continue
            threads.append(threading.Thread(target=_connected, args=(one, other, heard)))
            threads[-1].start()


def _connected(one, other, heard):
    """Pass on what either end says, until both are silent."""
    with one, other:
        back = threading.Thread(target=_pass_on, args=(other, one, heard))
        back.start()
        _pass_on(one, other, heard)
        back.join()


def _pass_on(source, target, heard):
    stream = bytearray()
    heard.append(stream)
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            stream += data
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
