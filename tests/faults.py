"""A repository on a real server that can be broken and mended, and what a run says of it."""

import json
import os
from pathlib import Path
from typing import Any

from fork_server import Running
from real_servers import PASSWORD, USER, Nginx
from runs import KUSTOMIZATION, application, arguments, manifest, repository, start, target
from support import Result, commit, git, image_update, show

# So long that it does not come in one piece: comments that cannot be packed.
LONG = "".join(f"# {os.urandom(48).hex()}\n" for _ in range(3000)) + KUSTOMIZATION


class Ground:
    """One repository with one Application, a temporary folder of its own, and how the server is reached."""

    def __init__(self, folder: Path, repos: Path) -> None:
        self.folder, self.temporary = folder, folder / "tmp"
        self.temporary.mkdir()
        self.repo = repository(repos, "web", name=f"{os.urandom(4).hex()}.git")
        (self.folder / "password").write_text(PASSWORD)
        self._environment = {"TMPDIR": str(self.temporary), "HOME": str(folder)}

    def url(self, port: int, scheme: str = "http") -> str:
        """The repository, on whatever listens at that port."""
        return f"{scheme}://localhost:{port}/{self.repo.name}"

    def options(self, port: int, scheme: str = "http") -> list[str | Path]:
        """A login for that port."""
        prefix = f"{scheme}://localhost:{port}/"
        file = self.folder / "password"
        return ["--git-username", USER, "--git-password-file", file, "--git-credentials-url", prefix]

    def start(self, url: str, *more: str | Path, env: dict[str, str] | None = None) -> Running:
        """A run on its way."""
        return start(self._arguments(url, *more), env={**self._environment, **(env or {})})

    def _arguments(self, url: str, *more: str | Path) -> list[str]:
        return arguments(manifest(self.folder, application("web", url)), *more)

    def run(self, url: str, *more: str | Path, env: dict[str, str] | None = None) -> Result:
        """A run, after which nothing is left behind and no secret was said."""
        result = image_update(*self._arguments(url, *more), env={**self._environment, **(env or {})})
        assert list(self.temporary.iterdir()) == []
        assert PASSWORD not in result.stdout + result.stderr
        assert "Traceback" not in result.stderr
        return result

    def by_http(self, port: int, *more: str | Path, env: dict[str, str] | None = None) -> Result:
        """A run with everything right, over plain http."""
        return self.run(self.url(port), *self.options(port), *more, env=env)

    def by_https(self, web: Nginx, *more: str | Path, env: dict[str, str] | None = None) -> Result:
        """A run with everything right, over https."""
        return self.run(
            self.url(web.tls, "https"), *self.options(web.tls, "https"), "--ca-file", web.ca, *more, env=env
        )

    def commits(self) -> int:
        """How many there are on the branch; one after another."""
        assert git(self.repo, "rev-list", "--merges", "main") == ""
        return int(git(self.repo, "rev-list", "--count", "main"))

    def landed(self) -> bool:
        """Whether the branch has the new tag."""
        return "newTag: 1.1.0" in show(self.repo, "main", target("web"))

    def lengthen(self) -> None:
        """From now on a fetch takes long enough to be broken off in the middle."""
        git(self.repo, "config", "uploadpackfilter.allow", "false")
        git(self.repo, "config", "uploadpack.allowFilter", "false")
        commit(self.repo, {target("web"): LONG})


def problem(result: Result) -> tuple[int, str, str]:
    """(exit code, the decision's rule, everything that is said of it)."""
    report: Any = json.loads(result.stdout)
    (decision,), (error,) = report["decisions"], report["errors"]
    return result.code, decision["rule"], f"{decision['because']} {error['hint']}"
