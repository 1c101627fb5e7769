"""The credentials of one run, in the form that git needs: variables, and copies that only this user can read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

from task.files import read_file, remove_folder, temporary_folder
from task.git.environment import Login
from task.git.ssh import PLAIN, SshFiles, SshGiven, collect, nameless, needs_own_files, passwd_home, write

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)  # fmt: skip


@dataclass(frozen=True)
class Credentials:
    """The given credentials, read and checked."""

    logins: tuple[Login, ...] = ()
    spare: tuple[Login, ...] = ()  # the CI system's own token, used if nothing else is given
    app: Callable[[str], Login] | None = None  # CA file → its token
    app_server: str = ""  # the server that this token is for
    ssh: SshFiles | None = None
    certificates: str = ""
    config_file: str = ""  # a `.gitconfig` that came with `--basic-auth-directory`
    pairs: Callable[[str], list[tuple[str, str]]] | None = None  # (private folder) → git's settings for the server
    variables: tuple[tuple[str, str], ...] = ()  # of git's environment
    alone: bool = False  # use no other login: the owner names a proxy, and turns off certificate checks
    only: str = ""  # the only repository that this is for, even if a login fits others


class Access:
    """The credentials of one run. Several threads may share them."""

    def __init__(self, given: Credentials | None = None, environ: Mapping[str, str] | None = None) -> None:
        self.given = given or Credentials()
        self._environ = environ or {}
        self._lock = Lock()
        self._folder = ""
        self._made: dict[str, object] = {}

    def logins(self, url: str = "", *, helped: bool) -> tuple[Login, ...]:
        """Return the logins for this URL ("" means any), each with the server that may get it.

        `helped`: the user's git configuration has logins of its own. Raises the errors of `task.git.github_app`.
        """
        given = self.given
        if given.app is None:
            return given.logins or (() if helped else given.spare)
        if not url.lower().startswith(given.app_server.lower() if url else ""):
            return given.logins
        with self._lock:
            login = self._made.get("app") or given.app(self._bundle())
            self._made["app"] = login
        return (login, *given.logins) if isinstance(login, Login) else given.logins

    def pairs(self) -> list[tuple[str, str]]:
        """Git's settings for the server besides a login. Some are secret."""
        if self.given.pairs is None:
            return []
        with self._lock:
            found = self._made.get("pairs") or self.given.pairs(self._private())
            self._made["pairs"] = found
        return list(found) if isinstance(found, list) else []

    def environment(self) -> dict[str, str]:
        """Return the variables for trusted certificate authorities, and for servers without a proxy."""
        with self._lock:
            bundle = self._bundle()
            # curl sends the login from ~/.netrc to the host
            alone = {"HOME": self._private(), "GIT_ASKPASS": ""} if self.given.alone else {}
        return dict(self.given.variables) | alone | ({"GIT_SSL_CAINFO": bundle} if bundle else {})

    def ssh(self) -> tuple[str, bool]:
        """Return the ssh command, and whether options asked for it."""
        with self._lock:
            if "ssh" not in self._made:
                home, files = self._environ.get("HOME", ""), self.given.ssh
                if files is None and needs_own_files(home):
                    files = collect(SshGiven(), home)
                self._made["ssh"] = write(files, self._private()) if files else PLAIN
            return str(self._made["ssh"]), self.given.ssh is not None

    def nameless(self) -> dict[str, str]:
        """Return what ssh needs in its environment if this user has no passwd entry."""
        if passwd_home() is not None:
            return {}
        with self._lock:
            return nameless(self._private(), self._environ.get("HOME", ""))

    def close(self) -> None:
        """Remove all copies."""
        with self._lock:
            if self._folder:
                remove_folder(self._folder)
            self._folder = ""
            self._made.clear()

    def _bundle(self) -> str:
        """Return the given authorities together with the machine's, because a run may reach both kinds of servers."""
        if not self.given.certificates:
            return ""
        path = os.path.join(self._private(), "ca.pem")
        if not os.path.exists(path):
            machines = (self._environ.get("GIT_SSL_CAINFO", ""), self._environ.get("SSL_CERT_FILE", ""), *_BUNDLES)
            with open(path, "wb") as file:
                file.writelines(read_file(found) for found in [one for one in machines if os.path.isfile(one)][:1])
                file.write(f"\n{self.given.certificates}\n".encode())
        return path

    def _private(self) -> str:
        if not self._folder:
            self._folder = temporary_folder(self._environ.get("TMPDIR") or "/tmp")  # noqa: S108 - a private folder in it
        return self._folder
