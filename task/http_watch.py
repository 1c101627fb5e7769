"""An answer that comes in drips is ended: a socket's own time-out begins anew with every byte, this one does not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from task import shutdown

_AGAIN = 0.2  # seconds until what could not be ended at once, as it was just being opened, is ended again


class Watch:
    """Knows the connection that each thread waits for. One per session."""

    def __init__(self) -> None:
        self._mine = threading.local()

    def over(self, adapter: Any, **known: str) -> Any:
        """The adapter of requests, with connections that can be ended from outside; `known` is said to each."""
        direct, by_proxy = adapter.poolmanager, adapter.proxy_manager_for
        self._prepare(direct, known)
        adapter.proxy_manager_for = lambda *args, **what: self._prepare(by_proxy(*args, **what), known)
        return adapter

    def _prepare(self, manager: Any, known: dict[str, str]) -> Any:
        if not getattr(manager, "watched", False):
            manager.watched = True
            manager.connection_pool_kw |= known
            pools = manager.pool_classes_by_scheme.items()
            manager.pool_classes_by_scheme = {scheme: self._watched(pool) for scheme, pool in pools}
        return manager

    def _watched(self, pool: Any) -> Any:
        mine = self._mine

        class Connection(pool.ConnectionCls):  # type: ignore[misc]
            def request(self, *args: Any, **what: Any) -> Any:
                mine.connection, mine.sock = self, None
                try:
                    return super().request(*args, **what)
                finally:
                    mine.sock = self.sock  # an answer without a length takes it away from the connection

        return type(pool.__name__, (pool,), {"ConnectionCls": Connection})

    @contextmanager
    def limit(self, seconds: float) -> Iterator[threading.Event]:
        """What this thread waits for in here is ended after so long, or by a signal; then the event is set."""
        self._mine.connection = self._mine.sock = None
        mine, ended, over = self._mine.__dict__, threading.Event(), threading.Event()

        def end() -> None:
            ended.set()
            sock = mine["sock"] or getattr(mine["connection"], "sock", None)
            if isinstance(sock, socket.socket):
                with suppress(OSError):  # TLS would forget how to read: only the socket below it is ended
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

        def watch() -> None:
            while not over.wait(_AGAIN if ended.is_set() else seconds):
                end()

        thread = threading.Thread(target=watch, daemon=True)
        with shutdown.unheard():
            thread.start()
        try:
            with shutdown.ending(end):
                yield ended
        finally:
            over.set()
