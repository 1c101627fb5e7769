"""The wire between a client and a real server: a TCP proxy that is slow, drops bytes, or reacts to
passing bytes.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

RESET = struct.pack("ii", 1, 0)  # SO_LINGER setting with which closing a socket sends a reset


class Wire:
    """A TCP proxy to a server. Its settings may be changed at any time."""

    def __init__(self, target: int) -> None:
        self.target = target  # the server's port
        self.delay = 0.0  # seconds before the first byte from the server is passed on
        self.cut_after = -1  # cut a connection after this many bytes from the server; -1: never
        self.cuts = 0  # number of connections to cut
        self.reset = False  # whether a cut connection is reset rather than closed
        self.at = -1  # call `then` once, after this many bytes from the server; -1: never
        self.then: Callable[[], None] = lambda: None
        self.connections = 0
        self.port = 0

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            self.connections += 1
            with suppress(OSError):
                upstream = socket.create_connection(("127.0.0.1", self.target))
                for pump in ((client, upstream, False), (upstream, client, True)):
                    threading.Thread(target=self._pump, args=pump, daemon=True).start()
                continue
            client.close()

    def _pump(self, source: socket.socket, sink: socket.socket, down: bool) -> None:
        passed = 0
        with suppress(OSError):
            while chunk := source.recv(4096):
                if down and not passed:
                    time.sleep(self.delay)
                passed += len(chunk)
                if down and 0 <= self.at <= passed:
                    self.at = -1
                    self.then()
                if down and self.cuts and 0 <= self.cut_after < passed:
                    self.cuts -= 1
                    sink.sendall(chunk[: self.cut_after - passed])
                    self._break(sink)
                    break
                sink.sendall(chunk)
        for one in (source, sink):
            _close(one, socket.SHUT_RDWR)

    def _break(self, client: socket.socket) -> None:
        if self.reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            _close(client, socket.SHUT_RD)


def _close(one: socket.socket, how: int) -> None:
    """Shut down and close a socket. Merely closing the socket would not wake a thread that is
    reading from it.
    """
    with suppress(OSError):
        one.shutdown(how)
    one.close()


@contextmanager
def wire(target: int) -> Iterator[Wire]:
    """Run a wire to the server on this local port for the duration of the block, and yield the
    wire.
    """
    made = Wire(target)
    with socket.create_server(("127.0.0.1", 0)) as server:
        made.port = server.getsockname()[1]
        thread = threading.Thread(target=made._serve, args=(server,), daemon=True)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
