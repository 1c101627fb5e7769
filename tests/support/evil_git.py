"""A hostile Git server over HTTP: it speaks the smart protocol, version 2, and never ends."""

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
LARGEST = 65_515  # bytes of a packet, without its length and band
ABILITIES = (
    b"version 2\n",
    b"agent=evil/1\n",
    b"ls-refs\n",
    b"fetch=shallow filter\n",
    b"object-format=sha1\n",
)


def packet(text: bytes) -> bytes:
    """Return one line of the protocol."""
    return b"%04x" % (len(text) + 4) + text


def banded(band: int, text: bytes) -> bytes:
    """Return a piece of the pack (1), of a message (2), or of a last message (3)."""
    return packet(bytes([band]) + text)


def said(text: bytes) -> bytes:
    """Return a message of any length, in as many packets as needed."""
    return b"".join(banded(2, text[at : at + LARGEST]) for at in range(0, len(text), LARGEST))


# The server's answer to a request: (path, body) → the pieces. None means the answer of an honest server.
Answer = Callable[[str, bytes], Iterable[bytes] | None]


def fetching(*answer: Iterable[bytes]) -> Answer:
    """Answer with an honest list of refs, and then with these pieces instead of a pack."""

    def answered(_path: str, body: bytes) -> Iterable[bytes] | None:
        if b"command=fetch" not in body:
            return None
        return (piece for pieces in ([packet(b"packfile\n")], *answer) for piece in pieces)

    return answered


def messages(lines: int = 500) -> Answer:
    """Answer with endless messages, so many at once."""
    return fetching(repeat(banded(2, b"x" * 100 + b"\n") * lines))


def slowly(answer: Answer, seconds: float) -> Answer:
    """Answer in the same way, with so much time after each piece."""

    def answered(path: str, body: bytes) -> Iterable[bytes] | None:
        pieces = answer(path, body)
        return None if pieces is None else _paused(pieces, seconds)

    return answered


def one_line(text: bytes) -> Answer:
    """Answer with one message of any length, and end."""
    return fetching([said(text + b"\n"), banded(3, b"that was it\n"), END])


def an_endless_line() -> Answer:
    """Answer with a message that never ends."""
    return fetching(repeat(said(b"x" * LARGEST)))


def refs() -> Answer:
    """Answer with endless branches."""

    def answered(_path: str, body: bytes) -> Iterable[bytes] | None:
        return _branches() if b"command=ls-refs" in body else None

    return answered


def page(status: int = 500) -> Answer:
    """Answer with an endless error page."""

    def answered(path: str, _body: bytes) -> Iterable[bytes] | None:
        return _page(status) if "info/refs" in path else None

    return answered


def pack() -> Answer:
    """Answer with an endless pack of blobs, each a megabyte that cannot be compressed.

    Each request gets it from the start.
    """

    def answered(path: str, body: bytes) -> Iterable[bytes] | None:
        return fetching(_pack())(path, body)

    return answered


def tree(size: int) -> Answer:
    """Answer with a small pack that has one tree of so many bytes."""
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
    """Yield the pack. Each megabyte is compressed independently, so one is used for all. Nobody reads the checksum."""
    deflate, piece = zlib.compressobj(9), b"\0" * 1_000_000
    first, again = (deflate.compress(piece) + deflate.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    squeezed = first + again * (size // len(piece) - 1) + deflate.flush()
    whole = b"PACK" + (2).to_bytes(4) + (1).to_bytes(4) + _head(2, size) + squeezed
    yield b"".join(banded(1, whole[at : at + LARGEST]) for at in range(0, len(whole), LARGEST))


def _head(kind: int, size: int) -> bytes:
    """Return the beginning of an object in a pack."""
    head, size = [(kind << 4) | (size & 15)], size >> 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    return bytes(head)


class EvilServer(ThreadingHTTPServer):
    """Sends `answer` until the client gives up."""

    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.sent = 0  # bytes
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        """The URL of a repository on it."""
        return f"http://127.0.0.1:{self.server_address[1]}/evil.git"


@contextmanager
def evil_server(answer: Answer) -> Iterator[EvilServer]:
    """A hostile server that runs during the block."""
    with serving(EvilServer(answer)) as server:
        yield server


class _Handler(BaseHTTPRequestHandler):
    server: EvilServer

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, *_message: object) -> None:
        """Say nothing."""

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
