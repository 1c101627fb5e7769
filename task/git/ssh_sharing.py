"""One SSH connection to a server for all git commands of a run: OpenSSH's own sharing, in a private folder.

A handshake takes about six times the way to the server and back; a run connects five times.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock

from task import shutdown
from task.errors import UnreachableError
from task.files import remove_folder, temporary_folder

_IDLE = 30  # seconds after which an unused connection ends by itself
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-")


class SshSharing:
    """The connections of one run. Several threads may share them."""

    def __init__(self, parent: str, environ: Mapping[str, str]) -> None:
        self._parent = parent
        self._environ = environ
        self._folder = ""
        self._known: list[tuple[str, str]] = []
        self._lock = Lock()

    def options(self, command: str, server: str) -> str:
        """Return options for an ssh command, so that commands for the same server share a connection."""
        with shutdown.shield(), self._lock:
            if not self._folder:
                with suppress(UnreachableError):
                    self._folder = temporary_folder(self._parent, sockets=True)
                if not _PLAIN.issuperset(self._folder):  # a shell reads the command
                    self.close()
                if not self._folder:
                    return ""
            if (command, server) not in self._known:
                self._known.append((command, server))
            path = f"{self._folder}/{self._known.index((command, server))}"
        return f" -o ControlMaster=auto -o ControlPersist={_IDLE} -o ControlPath={path}"

    def end(self) -> None:
        """Close the connections, which may be dead. The next command opens new ones."""
        with suppress(OSError):
            for name in os.listdir(self._folder) if self._folder else ():
                _exit(f"{self._folder}/{name}", self._environ)

    def close(self) -> None:
        """Close the connections, and remove their folder."""
        self.end()
        if self._folder:
            remove_folder(self._folder)
            self._folder = ""


def _exit(socket: str, environ: Mapping[str, str]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    try:
        argv = ["ssh", "-F", "none", "-O", "exit", "-o", f"ControlPath={socket}", "any"]
        files = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
        with suppress(OSError):
            os.waitpid(os.posix_spawnp("ssh", argv, environ, file_actions=files, setsigmask=()), 0)
    finally:
        os.close(null)
