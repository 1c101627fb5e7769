"""Scenes for tests of pull requests: the command, and a fake forge that has the branches of a real
repository.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fakes.forge_server import ForgeServer, Pull, Request

from support import Result, command, commit, fork_server, git, image_update, show
from support.forge_kinds import KINDS
from support.runs import WEB, application, manifest, repository, start, target

API = "ghcr.io/acme/api"
TOKEN = "good-token"
MEMORY = "image-update-memory/"
# No option changes the address of Bitbucket Cloud, so this code patches the command.
ELSEWHERE = """
from dataclasses import replace
from task.forges.client import ForgeAddress, web_below
from task.forges.places import FORGES
def there(remote, root):
    return ForgeAddress("bitbucket", "bitbucket.org", root + "/2.0", remote.parts, web_below(root, remote.parts))
FORGES["bitbucket"] = replace(FORGES["bitbucket"], place=there)
"""


class Branches(dict[str, str]):
    """The current branches of a repository."""

    def __init__(self, repo: Path) -> None:
        super().__init__()
        self._repo = repo

    def _read(self) -> dict[str, str]:
        lines = git(
            self._repo, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/"
        ).splitlines()
        return {
            name.removeprefix("refs/heads/"): oid
            for name, _, oid in (line.partition(" ") for line in lines)
        }

    def get(self, name: str, default: Any = None) -> Any:
        return self._read().get(name, default)

    def __getitem__(self, name: str) -> str:
        return self._read()[name]

    def __contains__(self, name: object) -> bool:
        return name in self._read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def values(self) -> Any:
        return self._read().values()


class Scene:
    """Applications with two images in a repository on a forge. Every update is proposed as a pull
    request.
    """

    def __init__(
        self,
        folder: Path,
        server: ForgeServer,
        kind: str = "github",
        names: tuple[str, ...] = ("a",),
        group: str = "",
        **annotations: str,
    ) -> None:
        self.folder, self.server, self.kind = folder, server, KINDS[kind]
        self.repo = repository(folder, *names)
        if group:
            commit(
                self.repo,
                {".image-update/config": f"version: 1\npullRequests: {{group: {group}}}\n"},
            )
        server.branches = Branches(self.repo)
        self.url = f"{server.url}/{self.kind.path}"
        given = {"image_list": f"web={WEB},api={API}", **annotations}
        self.apps = manifest(folder, *(application(name, self.url, **given) for name in names))
        self.flags: tuple[str, ...] = ("--pull-request",)
        self.env: dict[str, str] = {"IMAGE_UPDATE_FORGE_TOKEN": TOKEN}

    def given(self, *more: str) -> list[str]:
        rewrite = ("--rewrite-url", f"{self.url}={self.repo}", "--allow-protocol", "file")
        forge = ("--forge", f"{self.kind.name}={self.server.url}")
        return [
            *more,
            "--applications",
            str(self.apps),
            *rewrite,
            *forge,
            "--output",
            "json",
            *self.flags,
        ]

    def call(self, command: str, *more: str, env: Mapping[str, str] | None = None) -> Result:
        given, environ = self.given(command, *more), {**self.env, **(env or {})}
        result = (
            elsewhere(given, environ)
            if self.kind.name == "bitbucket"
            else image_update(*given, env=environ)
        )
        assert TOKEN not in result.stdout + result.stderr
        return result

    def started(self, *more: str) -> Any:
        return start(self.given("run", *more), env=self.env)

    def event(self, image: str, *more: str, code: int = 0) -> Any:
        """Send an event, and return the run's report."""
        result = self.call("run", "--image", image, *more)
        assert result.code == code, result.stderr
        return result.json

    @property
    def head(self) -> str:
        """The only branch besides main and its memory branch."""
        (found,) = [
            name for name in self.server.branches if name != "main" and not name.startswith(MEMORY)
        ]
        return found

    @property
    def memory(self) -> str:
        """The contents of the state files on the memory branch, or "" if there are none."""
        names = [name for name in self.server.branches if name.startswith(MEMORY)]
        paths = [
            f"{name}:{path}"
            for name in names
            for path in git(self.repo, "ls-tree", "-r", "--name-only", name).splitlines()
            if path.endswith(".state")
        ]
        return "".join(git(self.repo, "cat-file", "blob", one) for one in paths)

    def text(self, branch: str = "", name: str = "a") -> str:
        return show(self.repo, branch or self.head, target(name))

    def on_top(self) -> int:
        return int(git(self.repo, "rev-list", "--count", f"main..{self.head}"))

    def tips(self) -> str:
        return git(self.repo, "for-each-ref")

    def merge(self, *, delete: bool = False) -> Pull:
        """Merge the open request with a merge commit, as a person would."""
        (pull,) = self.server.open
        main, head = (self.server.branches[name] for name in (pull.base, pull.head))
        tree = f"{head}^{{tree}}"
        made = git(
            self.repo, "commit-tree", tree, "-p", main, "-p", head, "-m", f"Merge {pull.number}"
        )
        git(self.repo, "update-ref", f"refs/heads/{pull.base}", made)
        self.server.merge(str(pull.number))
        pull.merge_commit = made
        if delete:
            self.delete()
        return pull

    def decline(self) -> Pull:
        (pull,) = self.server.open
        self.server.decline(str(pull.number))
        return pull

    def delete(self) -> None:
        git(self.repo, "update-ref", "-d", f"refs/heads/{self.head}")

    def person(self, text: str = "namePrefix: x-\n", name: str = "a") -> None:
        """Commit to main, as a person would."""
        commit(self.repo, {target(name): self.text("main", name) + text})


def elsewhere(given: list[str], env: Mapping[str, str]) -> Result:
    running = fork_server.start([command(), *given], env={**os.environ, **env}, before=ELSEWHERE)
    out, err = running.communicate(timeout=60)
    return Result(running.wait(), out.decode(), err.decode())


def verdict(report: Any) -> tuple[str, str]:
    """Return the verdict and rule of the only decision."""
    (found,) = report["decisions"]
    return found["verdict"], found["rule"]


def url_of(report: Any) -> str:
    """Return the URL of the only request."""
    (found,) = report["commits"]
    return str(found["pull_request"])


def a_reviewers_week(scene: Scene) -> None:
    """Play a week in the life of a request. A rerun sets what could not be set before. What a
    person changes or removes stays that way until nothing is waiting anymore.
    """
    scene.flags = (*scene.flags, "--pull-request-reviewer", "ann")
    refusal = scene.server.refusal("forbidden")

    def refuse(request: Request) -> None:
        if scene.server.pulls and request.method != "GET" and not scene.server.faults:
            scene.server.fail(refusal, request.method)

    scene.server.before = refuse
    first = scene.call("run", "--image", f"{WEB}:1.1.0")
    assert (first.code, verdict(first.json)) == (0, ("update", "admitted"))
    assert first.stderr.startswith("warning: ")
    (pull,) = scene.server.open
    assert pull.reviewers == []
    scene.server.before = lambda _request: None
    tips = scene.tips()
    assert verdict(scene.event(f"{WEB}:1.1.0")) == ("unchanged", "same")
    assert (len(pull.reviewers), scene.tips()) == (1, tips)
    pull.reviewers.clear()
    pull.title, pull.body = "Checked by Ann", f"- [x] read\n\n{pull.body.rstrip()}\n\nAsk Bob."
    scene.server.seen.clear()
    scene.event(f"{WEB}:1.1.0")
    assert (len(scene.server.seen), scene.server.writes) == (
        3 if scene.kind.name == "azure" else 2,
        [],
    )
    scene.event(f"{WEB}:1.2.0")
    assert (pull.title, pull.reviewers) == ("Checked by Ann", [])
    assert pull.body.startswith("- [x] read\n\n")
    assert pull.body.rstrip().endswith("Ask Bob.")
    assert "`1.2.0`" in pull.body
    commit(scene.repo, {target("a"): scene.text("main").replace("1.0.0", "1.2.0")})
    head, before = scene.head, scene.text("main")
    scene.event(f"{WEB}:1.2.0")
    assert (pull.state, head in scene.server.branches) == ("closed", False)
    assert "so Image Update closed this request" in pull.body
    assert "Ask Bob." in pull.body
    # No person has declined the request.
    commit(scene.repo, {target("a"): before.replace("1.2.0", "1.0.0")})
    assert verdict(scene.event(f"{WEB}:1.2.0")) == ("update", "admitted")
    assert [one.number for one in scene.server.open] != [pull.number]
