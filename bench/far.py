"""A distant server, simulated by a TCP proxy that delays data and counts round trips."""

import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

DELAY = 0.03  # in seconds, each way


class Far:
    """The proxy. `trips` counts round trips, separately for connections that fetch ("fetch") and
    that push ("push").
    """

    def __init__(self, near: int) -> None:
        self.port = 0
        self.trips = {"fetch": 0, "push": 0}
        self._near = near

    def forget(self) -> None:
        """Reset the counters."""
        self.trips = {"fetch": 0, "push": 0}

    def serve(self, listening: socket.socket) -> None:
        """Accept connections until the listening socket is closed."""
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._connection, args=(client,), daemon=True).start()

    def _connection(self, client: socket.socket) -> None:
        # for the TCP handshake, which takes almost no time on this machine itself
        time.sleep(2 * DELAY)
        server = socket.create_connection(("127.0.0.1", self._near))
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        talk = _Talk(self.trips)
        for source, sink, up in ((client, server, True), (server, client, False)):
            late: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
            threading.Thread(target=_read, args=(source, late, talk, up), daemon=True).start()
            threading.Thread(target=_write, args=(sink, late), daemon=True).start()


class _Talk:
    """Tracks which side sent data last on a connection. A round trip starts when the client sends
    after the server.
    """

    def __init__(self, trips: dict[str, int]) -> None:
        self._trips = trips
        self._kind = ""
        self._waiting = False  # whether the client is waiting for a response

    def hear(self, chunk: bytes, *, up: bool) -> None:
        """Count a chunk of data towards the round trips."""
        if not self._kind:
            self._kind = "push" if b"receive-pack" in chunk else "fetch"
            self._trips[self._kind] += 1  # counts the TCP handshake
        if up and not self._waiting:
            self._trips[self._kind] += 1
        self._waiting = up


def _read(
    source: socket.socket,
    late: "queue.SimpleQueue[tuple[float, bytes]]",
    talk: _Talk,
    up: bool,  # noqa: FBT001
) -> None:
    chunk = b" "
    while chunk:
        try:
            chunk = source.recv(1 << 16)
        except OSError:
            chunk = b""
        if chunk:
            talk.hear(chunk, up=up)
        late.put((time.monotonic() + DELAY, chunk))


def _write(sink: socket.socket, late: "queue.SimpleQueue[tuple[float, bytes]]") -> None:
    with suppress(OSError):
        while True:
            due, chunk = late.get()
            time.sleep(max(due - time.monotonic(), 0))
            if not chunk:
                break
            sink.sendall(chunk)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


@contextmanager
def far(near: int) -> Iterator[Far]:
    """Make a server on a local port appear far away."""
    made = Far(near)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        made.port = listening.getsockname()[1]
        thread = threading.Thread(target=made.serve, args=(listening,))
        thread.start()
        try:
            yield made
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
