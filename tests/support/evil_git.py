"""A hostile Git server over HTTP, which speaks version 2 of the smart protocol, and whose responses
never end.
"""

import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat

from support.serving import serving

END = b"0000"
TIP = "1" * 40
LARGEST = 65_515  # bytes in a packet, excluding its length and band
ABILITIES = (
    b"version 2\n",
    b"agent=evil/1\n",
    b"ls-refs\n",
    b"fetch=shallow filter\n",
    b"object-format=sha1\n",
)


def packet(text: bytes) -> bytes:
    """Return one packet line of the protocol."""
    return b"%04x" % (len(text) + 4) + text


def banded(band: int, text: bytes) -> bytes:
    """Return a packet with a piece of the pack (band 1), of a message (2), or of a fatal error
    message (3).
    """
    return packet(bytes([band]) + text)


def said(text: bytes) -> bytes:
    """Return a message of any length, split into as many packets as needed."""
    return b"".join(banded(2, text[at : at + LARGEST]) for at in range(0, len(text), LARGEST))


# Maps a request (path, body) to the pieces of the server's response. None means that the server
# responds honestly.
Answer = Callable[[str, bytes], Iterable[bytes] | None]


def fetching(*answer: Iterable[bytes]) -> Answer:
    """Respond with a genuine list of refs, and then with these pieces instead of a pack."""

    def answered(_path: str, body: bytes) -> Iterable[bytes] | None:
        if b"command=fetch" not in body:
            return None
        return (piece for pieces in ([packet(b"packfile\n")], *answer) for piece in pieces)

    return answered


def messages(lines: int = 500) -> Answer:
    """Respond with an endless series of messages, this many lines at a time."""
    return fetching(repeat(banded(2, b"x" * 100 + b"\n") * lines))


def slowly(answer: Answer, seconds: float) -> Answer:
    """Send the same response, with a pause after each piece."""

    def answered(path: str, body: bytes) -> Iterable[bytes] | None:
        pieces = answer(path, body)
        return None if pieces is None else _paused(pieces, seconds)

    return answered


def one_line(text: bytes) -> Answer:
    """Respond with a single message of any length, and end the response."""
    return fetching([said(text + b"\n"), banded(3, b"that was it\n"), END])


def an_endless_line() -> Answer:
    """Respond with a message that never ends."""
    return fetching(repeat(said(b"x" * LARGEST)))


def refs() -> Answer:
    """Respond with an endless list of branches."""

    def answered(_path: str, body: bytes) -> Iterable[bytes] | None:
        return _branches() if b"command=ls-refs" in body else None

    return answered


def page(status: int = 500) -> Answer:
    """Respond with an endless error page."""

    def answered(path: str, _body: bytes) -> Iterable[bytes] | None:
        return _page(status) if "info/refs" in path else None

    return answered


def pack() -> Answer:
    """Respond with an endless pack of blobs, each of which is an incompressible megabyte.

    Each request receives the pack from the start.
    """

    def answered(path: str, body: bytes) -> Iterable[bytes] | None:
        return fetching(_pack())(path, body)

    return answered


def tree(size: int) -> Answer:
    """Respond with a small pack that contains a single tree of `size` bytes."""
    return fetching(_tree(size))


def _paused(pieces: Iterable[bytes], seconds: float) -> Iterator[bytes]:
    for piece in pieces:
        yield piece
        time.sleep(seconds)


def _branches() -> Iterator[bytes]:
    yield packet(f"{TIP} HEAD symref-target:refs/heads/main\n".encode())
    yield from repeat(
        b"".join(packet(f"{TIP} refs/heads/main/{number}\n".encode()) for number in range(2000))
    )


def _page(status: int) -> Iterator[bytes]:
    yield b"HTTP/1.0 %d Evil\r\nContent-Type: text/plain\r\n\r\n" % status
    yield from repeat((b"x" * 100 + b"\n") * 1000)


def _pack() -> Iterator[bytes]:
    yield banded(1, b"PACK" + (2).to_bytes(4) + (1_000_000).to_bytes(4))
    size = 1_000_000
    content = zlib.compress(os.urandom(size), 0)
    blob = _head(3, size) + content
    yield from repeat(
        b"".join(banded(1, blob[at : at + LARGEST]) for at in range(0, len(blob), LARGEST))
    )


def _tree(size: int) -> Iterator[bytes]:
    """Yield the pack. The first megabyte starts the stream. All others share the same compressed
    form, because each is compressed independently. The checksum is never read.
    """
    deflate, piece = zlib.compressobj(9), b"\0" * 1_000_000
    first, again = (deflate.compress(piece) + deflate.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    squeezed = first + again * (size // len(piece) - 1) + deflate.flush()
    whole = b"PACK" + (2).to_bytes(4) + (1).to_bytes(4) + _head(2, size) + squeezed
    yield b"".join(banded(1, whole[at : at + LARGEST]) for at in range(0, len(whole), LARGEST))


def _head(kind: int, size: int) -> bytes:
    """Return the pack header of an object."""
    head, size = [(kind << 4) | (size & 15)], size >> 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    return bytes(head)


class EvilServer(ThreadingHTTPServer):
    """A server that sends `answer` until the client gives up."""

    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.sent = 0  # bytes
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        """The URL of a repository on this server."""
        return f"http://127.0.0.1:{self.server_address[1]}/evil.git"


@contextmanager
def evil_server(answer: Answer) -> Iterator[EvilServer]:
    """Run a hostile server for the duration of the block."""
    with serving(EvilServer(answer)) as server:
        yield server


class _Handler(BaseHTTPRequestHandler):
    server: EvilServer

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, *_message: object) -> None:
        """Log nothing."""

    def _answer(self, body: bytes) -> None:
        self.server.asked.append(self.path)
        pieces = self.server.answer(self.path, body)
        kind = "advertisement" if "info/refs" in self.path else "result"
        head = (
            b"HTTP/1.0 200 OK\r\nContent-Type: application/x-git-upload-pack-%b\r\n\r\n"
            % kind.encode()
        )
        with suppress(OSError):
            for piece in _honest(self.path) if pieces is None else pieces:
                whole = piece if piece.startswith(b"HTTP/") else head + piece
                head = b""
                self.wfile.write(whole)
                self.server.sent += len(whole)


def _honest(path: str) -> list[bytes]:
    if "info/refs" in path:
        return [packet(b"# service=git-upload-pack\n"), END, *map(packet, ABILITIES), END]
    return [
        packet(f"{TIP} HEAD symref-target:refs/heads/main\n".encode()),
        packet(f"{TIP} refs/heads/main\n".encode()),
        END,
    ]
