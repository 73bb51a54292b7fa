"""A listener on the way between sites and their server: passes everything on, and keeps a copy."""

import contextlib
import socket
import threading


@contextlib.contextmanager
def recorded(port):
    """A port that leads to the given one, and the bytes of each connection and direction."""
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_accept, args=(server, port, heard), daemon=True).start()
        yield server.getsockname()[1], heard


def _accept(server, port, heard):
    with contextlib.suppress(OSError):  # closed: the test is over
        while True:
            one, _ = server.accept()
            try:
                other = socket.create_connection(("127.0.0.1", port))
            except OSError:
                one.close()
                continue
            for source, target in ((one, other), (other, one)):
                threading.Thread(target=_pass_on, args=(source, target, heard), daemon=True).start()


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
