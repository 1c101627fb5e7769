"""A change to an in-memory repository, and what `check` reports about it, without Git or
processes.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.fake_world import fake_world
from support.memory import NOW, SCOPE, URL, WORDING, Branch, shown
from support.runs import KUSTOMIZATION, application, target
from task.applications.manifest_text import found_in, or_broken
from task.commands.check import check
from task.deciding.job import Job, Terms
from task.errors import TaskError
from task.landing.ports import Side
from task.model import Answer, Compared, File, Found, Place, Question, Report, Snapshot, Verdict
from task.proof import Proof

Text = Mapping[str, str | None]  # None deletes the file
BASE, HEAD, MERGED = "b" * 40, "c" * 40, "d" * 40
MANIFEST = "clusters/{}.json"


class MemoryChange:
    """What `check` reads from a change: the files before and after it."""

    branch = default = "main"
    repo = URL
    commits = (BASE, HEAD)

    def __init__(
        self,
        base: Mapping[str, str],
        merged: Mapping[str, str],
        apps: Callable[[Mapping[str, str]], Iterable[Found]],
        memory: Mapping[str, str] = {},
        past: Iterable[Mapping[str, str]] = (),
        messages: tuple[str, ...] = (),
    ) -> None:
        self.files: dict[Side, Mapping[str, str]] = {"base": base, "merged": merged}
        self.memory = memory
        self.past = [*past, base]
        self.messages = messages
        self._apps = apps

    @property
    def paths(self) -> list[str]:
        old, new = self.files["base"], self.files["merged"]
        return sorted(path for path in {*old, *new} if old.get(path) != new.get(path))

    def concerns(self, url: str) -> bool:
        return url == URL

    def applications(self, side: Side) -> Iterable[Found]:
        return self._apps(self.files[side])

    def snapshot(
        self,
        side: Side,
        places: Iterable[Place],
        urls: Collection[str],  # noqa: ARG002 - it shows everything
    ) -> Snapshot:
        list(places)
        memory = {path: File(text) for path, text in self.memory.items()} if side == "base" else {}
        tip = BASE if side == "base" else MERGED
        return Snapshot(URL, "main", tip, shown(self.files[side]), memory_files=memory)

    def read_more(self, snapshot: Snapshot, places: Collection[Place]) -> Snapshot:  # noqa: ARG002 - as above
        return snapshot

    def earlier(
        self,
        branch: str,  # noqa: ARG002 - one branch
        path: str,
        limit: int,
        marked: Collection[str] = (),  # noqa: ARG002
    ) -> Iterable[tuple[str, str | None]]:
        texts = [files.get(path) for files in reversed(self.past)]
        return [(f"{number:040x}", text) for number, text in enumerate(texts)][:limit]

    def close(self) -> None:
        pass


def in_repository(files: Mapping[str, str]) -> list[Found]:
    """Return the Applications whose manifests are in the repository itself."""
    return [
        found
        for path, text in sorted(files.items())
        if path.startswith("clusters/")
        for found in or_broken(found_in(text.encode(), path), [(path, text.encode())], path)
    ]


@dataclass
class Judge:
    """Everything that a judgment depends on besides the change: registries, proofs, and the
    clock.
    """

    now: str = NOW
    answer: Answer = Answer(digest="sha256:" + "a" * 64, created="2026-01-01T00:00:00Z")
    answers: dict[str, Answer] = field(default_factory=dict)  # keyed by tag or digest
    prove: Callable[[Collection[Question]], Mapping[Question, Proof | Verdict | TaskError]] = (
        lambda questions: dict.fromkeys(questions, Proof("signature", "ci"))
    )
    check: str = "auto"
    asked: list[Question] = field(default_factory=list)
    proved: list[Question] = field(default_factory=list)
    log: list[tuple[str, str]] = field(default_factory=list)
    memory: Mapping[str, str] = field(default_factory=dict)
    past: tuple[Mapping[str, str], ...] = ()
    messages: tuple[str, ...] = ()  # the messages of the change's commits

    def report(
        self,
        base: Mapping[str, str],
        merged: Mapping[str, str],
        apps: Callable[[Mapping[str, str]], Iterable[Found]] = in_repository,
    ) -> Report:
        """Return the report of `check` about the change from one tree to another."""
        change = MemoryChange(base, merged, apps, self.memory, self.past, self.messages)
        world = fake_world(
            change=lambda _compared: change,
            locate=lambda _origin: None,
            repository=lambda _repo, _sub: Branch(base),
            now=lambda: 0.0,
            log=lambda *line: self.log.append(line),
            registry=self._answers,
            prove=self._proofs,
        )
        job = Job("check", (), SCOPE, Terms(now=self.now, check=self.check), WORDING, dry=True)
        return check(job, world, Compared(BASE, HEAD))

    def _answers(self, questions: Collection[Question]) -> dict[Question, Answer]:
        self.asked += questions
        return {
            one: self.answers.get(one.image.digest or one.image.tag, self.answer)
            for one in questions
        }

    def _proofs(
        self, questions: Collection[Question]
    ) -> Mapping[Question, Proof | Verdict | TaskError]:
        self.proved += questions
        return self.prove(questions)


def manifest_file(name: str = "a", **annotations: str) -> dict[str, str]:
    """Return a file with the manifest of an Application that tracks `web` in its kustomization."""
    return {MANIFEST.format(name): json.dumps(application(name, URL, **annotations))}


def manifest_of(
    name: str, change: Callable[[dict[str, Any]], None], **annotations: str
) -> dict[str, str]:
    """Return a file with an Application's manifest, modified by `change`."""
    item = application(name, URL, **annotations)
    change(item)
    return {MANIFEST.format(name): json.dumps(item)}


def tagged(tag: str, name: str = "a") -> dict[str, str]:
    """Return the Application's kustomization with this tag, or `tag@digest`."""
    tag, _, digest = tag.partition("@")
    text = KUSTOMIZATION.replace("1.0.0", tag) + (f"  digest: {digest}\n" if digest else "")
    return {target(name): text}


def tree(*parts: Text) -> dict[str, str]:
    """Return a tree with these files, where later parts override earlier ones."""
    found: dict[str, str] = {}
    for part in parts:
        for path, text in part.items():
            found.pop(path, None)
            if text is not None:
                found[path] = text
    return found


def told(report: Report) -> list[tuple[str, str, str]]:
    """Return (alias, verdict, rule) for each decision."""
    return [(one.subscription.entry.alias, one.verdict, one.rule) for one in report.decisions]


def warnings(report: Report) -> str:
    """Return the report's warnings, one per line."""
    return "\n".join(one.message for one in report.problems if one.severity == "warning")
