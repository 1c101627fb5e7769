"""What the git configuration of the user and the system says about servers. The rest of it is not used."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property

from task.errors import CredentialsError
from task.git.environment import config_pairs, configuration_files, listed, transport
from task.git.errors import GitFailed, quoted


class HostConfig:
    """Read once, when a server is contacted for the first time. Without such a file, no process is started."""

    def __init__(self, run: Callable[..., bytes], environ: Mapping[str, str], more: str = "") -> None:
        self._run = run
        self._environ = environ  # if empty, no configuration counts
        self._more = more  # a configuration file that was given for this run

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Return credentials, URL rewriting, http and ssh. Raises `CredentialsError` if git cannot read a file."""
        files = configuration_files(self._environ) if self._environ else []
        readable = (path for path in files if os.path.isfile(path) and os.access(path, os.R_OK))
        found = [pair for path in readable for pair in self._list(path)]
        return found + [pair for pair in self._list(self._more) if not _is_helper(pair[0])] if self._more else found

    @property
    def rewrites(self) -> bool:
        """Whether it rewrites URLs: an https URL may become ssh."""
        return any(key.lower().startswith("url.") for key, _ in self._all)

    @property
    def to_http(self) -> bool:
        """Whether a URL may be rewritten to plain http."""
        return any(key.lower().startswith("url.http://") for key, _ in self._all)

    @property
    def helped(self) -> bool:
        """Whether it has logins of its own."""
        return any(_is_helper(key) or key.lower().endswith(".extraheader") for key, _ in self._all)

    @property
    def programs(self) -> list[str]:
        """The configured programs for logins: credential helpers, and the program that asks for a password."""
        return [
            value for key, value in self._all if _is_helper(key) or key.lower() in {"core.askpass", "core.sshcommand"}
        ]

    @property
    def safe(self) -> list[str]:
        """The trusted local repositories of other users, as git lists them."""
        return [value for key, value in self._all if key.lower() == "safe.directory"]

    @property
    def ssh_command(self) -> str:
        """The ssh command, or "" if it has none."""
        commands = (value for key, value in reversed(self._all) if key.lower() == "core.sshcommand")
        return next(commands, "")

    @cached_property
    def _all(self) -> list[tuple[str, str]]:
        """Add the settings from variables, which git reads by itself."""
        return [*self.pairs, *config_pairs(self._environ)]

    def _list(self, path: str) -> list[tuple[str, str]]:
        try:
            return transport(listed(self._run("config", "--file", path, "--includes", "--null", "--list")))
        except GitFailed as error:
            hint = "fix it, or ignore it with --no-git-config"
            raise CredentialsError(f"git cannot read its configuration: {quoted(error.err)}", hint=hint) from error


def _is_helper(key: str) -> bool:
    return key.lower().startswith("credential.") and key.lower().endswith(".helper")
