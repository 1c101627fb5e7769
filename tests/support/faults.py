"""A repository on a real server that can be broken and repaired, and helpers for what a run reports
about faults.
"""

import json
import os
from pathlib import Path
from typing import Any

from support import Result, commit, git, image_update, show
from support.fork_server import Running
from support.real_servers import PASSWORD, USER, Nginx
from support.runs import KUSTOMIZATION, application, arguments, manifest, repository, start, target

# Incompressible comments that are too long to arrive in one piece.
LONG = "".join(f"# {os.urandom(48).hex()}\n" for _ in range(3000)) + KUSTOMIZATION


class Ground:
    """A repository with one Application, a temporary folder, and the means to reach the server."""

    def __init__(self, folder: Path, repos: Path) -> None:
        self.folder, self.temporary = folder, folder / "tmp"
        self.temporary.mkdir()
        self.repo = repository(repos, "web", name=f"{os.urandom(4).hex()}.git")
        (self.folder / "password").write_text(PASSWORD)
        self._environment = {"TMPDIR": str(self.temporary), "HOME": str(folder)}

    def url(self, port: int, scheme: str = "http") -> str:
        """Return the repository's URL on the server at this port."""
        return f"{scheme}://localhost:{port}/{self.repo.name}"

    def options(self, port: int, scheme: str = "http") -> list[str | Path]:
        """Return the options that log in to the server at this port."""
        prefix = f"{scheme}://localhost:{port}/"
        file = self.folder / "password"
        return [
            "--git-username",
            USER,
            "--git-password-file",
            file,
            "--git-credentials-url",
            prefix,
        ]

    def start(self, url: str, *more: str | Path, env: dict[str, str] | None = None) -> Running:
        """Start a run."""
        return start(self._arguments(url, *more), env={**self._environment, **(env or {})})

    def _arguments(self, url: str, *more: str | Path) -> list[str]:
        return arguments(manifest(self.folder, application("web", url)), *more)

    def run(self, url: str, *more: str | Path, env: dict[str, str] | None = None) -> Result:
        """Do a run, and check that it leaves nothing behind and prints no secret."""
        result = image_update(
            *self._arguments(url, *more), env={**self._environment, **(env or {})}
        )
        assert list(self.temporary.iterdir()) == []
        assert PASSWORD not in result.stdout + result.stderr
        assert "Traceback" not in result.stderr
        return result

    def by_http(self, port: int, *more: str | Path, env: dict[str, str] | None = None) -> Result:
        """Do a run over plain HTTP, with the correct URL and login."""
        return self.run(self.url(port), *self.options(port), *more, env=env)

    def by_https(self, web: Nginx, *more: str | Path, env: dict[str, str] | None = None) -> Result:
        """Do a run over HTTPS, with the correct URL, login, and CA."""
        return self.run(
            self.url(web.tls, "https"),
            *self.options(web.tls, "https"),
            "--ca-file",
            web.ca,
            *more,
            env=env,
        )

    def commits(self) -> int:
        """Return the number of commits on the branch, and check that its history is linear."""
        assert git(self.repo, "rev-list", "--merges", "main") == ""
        return int(git(self.repo, "rev-list", "--count", "main"))

    def landed(self) -> bool:
        """Return whether the branch contains the new tag."""
        return "newTag: 1.1.0" in show(self.repo, "main", target("web"))

    def lengthen(self) -> None:
        """Make fetches take long enough to be interrupted halfway."""
        git(self.repo, "config", "uploadpackfilter.allow", "false")
        git(self.repo, "config", "uploadpack.allowFilter", "false")
        commit(self.repo, {target("web"): LONG})


def problem(result: Result) -> tuple[int, str, str]:
    """Return (exit code, the decision's rule, everything reported about the decision)."""
    report: Any = json.loads(result.stdout)
    (decision,), (error,) = report["decisions"], report["errors"]
    return result.code, decision["rule"], f"{decision['because']} {error['hint']}"
