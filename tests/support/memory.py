"""An in-memory branch, and runs on it: what the pipeline decides and lands, without Git or
processes.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha1
from typing import Any

from support.fake_world import fake_world
from support.merging import merged_text
from support.runs import KUSTOMIZATION, WEB, application, target
from task.after.follow_up import follow_up
from task.annotations.application import PREFIX, Narrow
from task.annotations.subscription import Defaults, Scope
from task.cli.update import match_of
from task.deciding.job import Followed, Intent, Job, LandedApplication, Terms, Wording
from task.errors import NotAtomicError, Outpaced, TaskError
from task.git.names import memory_branch
from task.image import parse_image
from task.landing.waiting_list import WaitingList, is_list_path, read_list
from task.model import (
    Answer,
    Build,
    Changeset,
    Event,
    File,
    Files,
    FileVersion,
    Found,
    Head,
    Hold,
    Judged,
    LandedCommit,
    Person,
    Place,
    Question,
    Report,
    Snapshot,
    Verdict,
)
from task.pipeline.run import run
from task.proof import Proof

URL = "https://git.example/gitops.git"
NOW = "2026-11-22T12:00:00Z"


class Branch:
    """A branch of a repository, with compare-and-swap updates, the files at each of its commits,
    and its head branches.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self.url = URL
        self.name = "main"
        self.commits = [dict(files)]
        self.heads: dict[str, Commit] = {}
        self.made = 0
        # commits on head branches that are also in the base's history
        self.within: set[str] = set()
        self.trusted = True  # whether an authorized key has signed the memory
        self.atomic = True  # whether two branches can be pushed together
        self.interrupt: tuple[str, Callable[[], object]] | None = (
            None  # something else that happens before this step of the next run
        )

    def reached(self, step: str) -> None:
        """Call the function that is due before this step, but only once."""
        if self.interrupt and self.interrupt[0] == step:
            (_, call), self.interrupt = self.interrupt, None
            call()

    def opened(self) -> Any:
        """Return the repository as a run opens it."""
        return self

    def delete(self, head: str) -> None:
        """Delete a head branch, as a person would."""
        del self.heads[head]

    def rename(self, name: str) -> None:
        """Rename the base, which remains the default branch."""
        self.name = name

    @property
    def tip(self) -> str:
        return f"{len(self.commits):040x}"

    @property
    def files(self) -> dict[str, str]:
        return self.commits[-1]

    @property
    def proposals(self) -> dict[str, "Commit"]:
        """The head branches, without the memory branch."""
        return {
            name: one
            for name, one in self.heads.items()
            if not name.startswith("image-update-memory/")
        }

    @property
    def memory(self) -> dict[str, str]:
        """The state files on the memory branch."""
        return {path: text for path, text in self.remembered.items() if not is_list_path(path)}

    @property
    def lists(self) -> dict[str, WaitingList]:
        """The waiting lists on the memory branch, keyed by head branch."""
        texts = [text for path, text in self.remembered.items() if is_list_path(path)]
        return {one.head: one for one in map(read_list, texts)}

    @property
    def remembered(self) -> dict[str, str]:
        """All files on the memory branch."""
        found = self.memory_head
        return self.heads[found].files if found else {}

    @property
    def memory_head(self) -> str:
        """The memory branch for the base or, if there is none, the one for the base's previous
        name.
        """
        names = [name for name in self.heads if name.startswith("image-update-memory/")]
        own = memory_branch(self.url, self.name)
        return own if own in names else next(iter(names), "")

    @property
    def memory_moves(self) -> bool:
        """True if the memory is still stored under the base's previous name."""
        return self.memory_head not in ("", memory_branch(self.url, self.name))

    def commit(self, files: Mapping[str, str]) -> None:
        """Add someone else's commit."""
        self.commits.append({**self.files, **files})

    def commit_on(self, head: str, files: Mapping[str, str]) -> None:
        """Add someone else's commit to a head branch. A new branch starts at the base."""
        under = self.heads[head].files if head in self.heads else self.files
        parent = self.heads[head].id if head in self.heads else self.tip
        self._move(head, {**under, **files}, None, parent=parent)

    def merge(self, head: str, *, keep: bool = False, style: str = "squash") -> bool:
        """Merge a head branch as Git would: apply its changes since the commit at which it started.
        Return False if there are conflicts.
        """
        one = self.heads[head]
        before = one.before if one.before is not None else self.commits[0]
        paths = {path for path in (*before, *one.files) if before.get(path) != one.files.get(path)}
        merged = {
            path: merged_text(before.get(path), one.files.get(path), self.files.get(path))
            for path in paths
        }
        if not all(whole for _text, whole in merged.values()):
            return False
        files = {**self.files, **{path: text for path, (text, _whole) in merged.items()}}
        self.commits.append({path: text for path, text in files.items() if text is not None})
        if style != "squash":
            self.within.add(one.id)
        if not keep:
            del self.heads[head]
        return True

    def default_branch(self, *, tip: bool = True) -> str:  # noqa: ARG002 - nothing is fetched
        return self.name

    def snapshot(
        self,
        branch: str,
        places: Iterable[Place],
        heads: Collection[str] = (),  # noqa: ARG002
        default: Collection[Place] = (),  # noqa: ARG002
        besides: Callable[[Files], Iterable[Place]] | None = None,
    ) -> Snapshot:
        list(places)
        files = {path: File(text) for path, text in self.remembered.items()}
        name = self.memory_head
        tip = self.heads[name].id if name else ""
        list(besides(files) if besides else ())
        here = shown(self.files)
        found = Snapshot(URL, branch, self.tip, here, memory_files=files, memory_tip=tip)
        if not self.memory_moves:
            return found
        return replace(found, memory_tip="", inherited=(name, tip), renamed_from="another name")

    def read_more(self, snapshot: Snapshot, places: Iterable[Place]) -> Snapshot:  # noqa: ARG002 - it shows everything
        head = self.heads.get(snapshot.branch)
        return replace(snapshot, files=shown(head.files)) if head else snapshot

    def with_memory_branch_under(self, snapshot: Snapshot, prefix: str) -> Snapshot:
        return replace(snapshot, prefix=prefix)

    def head(self, head: str) -> Head | None:
        one = self.heads.get(head)
        if one is None:
            return None
        return Head(head, one.id, tree_of(one.files), one.parent, one.message)

    def signed(self, commit: str, keys: Collection[str]) -> bool:  # noqa: ARG002 - commits are not signed
        return self.trusted

    def merged(self, branch: str, commit: str) -> bool:  # noqa: ARG002 - one branch
        return commit in self.within

    def land(self, change: Changeset, memory_change: Changeset | None = None) -> LandedCommit:
        self.reached("land")
        if memory_change is not None and not self.atomic:
            raise NotAtomicError
        landing = self.predict(change)
        if not landing.pushed:
            return landing
        if memory_change is not None:
            self._check_memory(memory_change)
            landing = replace(landing, memory_commit=self._remembered(memory_change).commit)
        head, new = change.head, self._with(change)
        if head != change.base:
            under = self.heads[head].id if change.on_top else change.tip
            before = None if change.on_top else dict(self._at(change.tip))
            return replace(landing, commit=self._move(head, new, before, change.message, under))
        self.commits.append(new)
        return replace(landing, commit=self.tip)

    def predict(self, change: Changeset) -> LandedCommit:
        head = change.head
        there = self.heads[head].id if head in self.heads else ""
        # As in Git, a head branch may start at an older commit on the base.
        of_base = head == change.base and change.tip != self.tip
        moved = there != change.tip if change.on_top else of_base
        if moved or (change.head_commit is not None and there != change.head_commit):
            raise Outpaced(head)
        tree = tree_of(self._with(change))
        one = None if change.on_top else self.heads.get(head)
        if one and one.parent == change.tip and one.files == self._with(change):
            return LandedCommit(one.id, tree, pushed=False)
        return LandedCommit("", tree)

    def _at(self, tip: str) -> dict[str, str]:
        return self.commits[int(tip, 16) - 1]

    def _with(self, change: Changeset) -> dict[str, str]:
        under = self.heads[change.head].files if change.on_top else self._at(change.tip)
        new = {**under, **{path: file.text for path, file in change.files.items()}}
        return {
            path: text
            for path, text in new.items()
            if path not in change.files or change.files[path].mode
        }

    def remember(self, change: Changeset) -> LandedCommit:
        self.reached("remember")
        self._check_memory(change)
        return self._remembered(change)

    def _check_memory(self, change: Changeset) -> None:
        head = change.head
        if (self.heads[head].id if head in self.heads else "") != change.head_commit:
            raise Outpaced(head)

    def _remembered(self, change: Changeset) -> LandedCommit:
        head = change.head
        self.heads.pop(head, None)
        if not change.files:
            return LandedCommit("", "")
        files = {path: file.text for path, file in change.files.items()}
        return LandedCommit(self._move(head, files, None, change.message), tree_of(files))

    def drop(self, head: str, was: str) -> None:
        self.reached("drop")
        if head not in self.heads or self.heads[head].id != was:
            raise Outpaced(head)
        del self.heads[head]

    def _move(
        self,
        head: str,
        files: Mapping[str, str],
        before: dict[str, str] | None,
        message: str = "",
        parent: str = "",
    ) -> str:
        self.made += 1
        name = f"{self.made:x}".rjust(40, "f")
        self.heads[head] = Commit(name, dict(files), before, message, parent)
        return name

    def earlier(
        self,
        branch: str,  # noqa: ARG002 - one branch
        path: str,
        limit: int,
        marked: Collection[str] = (),
    ) -> Iterable[tuple[str, str | None]]:
        found: list[tuple[str, str | None]] = []
        for number, files in enumerate(self.commits, 1):
            commit, text = f"{number:040x}", files.get(path)
            if not found or found[-1][1] != text:
                found.append((commit, text))
            elif found[-1][0] not in marked:
                found[-1] = (commit, text)
        return found[::-1][:limit]

    def written(
        self,
        branch: str,  # noqa: ARG002 - one branch
        pages: Iterable[Collection[str]],
        most: int,
    ) -> Iterator[dict[str, list[FileVersion]]]:
        for paths in pages:
            yield self._written(paths, most)

    def _written(self, paths: Collection[str], most: int) -> dict[str, list[FileVersion]]:
        found: dict[str, list[FileVersion]] = {path: [] for path in paths}
        for number, files in enumerate(self.commits, 1):
            before = self.commits[number - 2] if number > 1 else {}
            for path, versions in found.items():
                if files.get(path) != before.get(path):
                    message = f"Change\n\nPipeline-Run: https://ci.example/{number}\n"
                    versions.insert(
                        0, FileVersion(files.get(path), f"{number:040x}", NOW, "CI", message)
                    )
        return {path: versions[:most] for path, versions in found.items()}

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Commit:
    """The tip of a head branch."""

    id: str
    files: dict[str, str]
    before: dict[str, str] | None  # the base that our commit builds on; None for others' commits
    message: str = ""
    parent: str = ""


def tree_of(files: Mapping[str, str]) -> str:
    """Return an ID for these files, similar to that of a Git tree."""
    return sha1(repr(sorted(files.items())).encode()).hexdigest()  # noqa: S324 - as Git does


def shown(files: Mapping[str, str]) -> dict[str, File]:
    """Return the files as they appear in a snapshot, including their folders."""
    folders = {path[:end] for path in files for end, letter in enumerate(path) if letter == "/"}
    return {path: File(text) for path, text in files.items()} | {
        path: File("", "040000") for path in folders
    }


class Story:
    """An Application on a branch, and consecutive runs for events and manual commands."""

    def __init__(self, app: Mapping[str, Any], branch: Branch) -> None:
        self.app, self.branch = app, branch
        self.others: list[Mapping[str, Any]] = []  # more Applications on the same branch
        self.ancestry: Callable[[str, str, str], str] = lambda _repository, _new, _old: ""
        self.synced: tuple[str, ...] = ()  # the revisions in Argo CD's history, newest first
        self.follow: Callable[[Sequence[LandedApplication]], Followed] = lambda _landed: Followed()
        self.now = NOW
        self.tags: tuple[str, ...] = ()  # the tags that the registry lists
        self.answer = Answer()  # the rest of the registry's response
        self.answers: dict[str, Answer] = {}  # the responses about individual tags
        self.asked: list[Question] = []
        self.log: list[tuple[str, str]] = []
        self.prove: Callable[
            [Collection[Question]], Mapping[Question, Proof | Verdict | TaskError]
        ] = lambda _: {}
        self.because = ""  # the reason for the last decision

    def event(self, tag: str, sequence: int | None = None, image: str = WEB) -> tuple[str, str]:
        """Send a build event, and return the verdict and its rule."""
        one = parse_image(f"{image}:{tag}")
        decision = self._one(
            Job("run", (one,), SCOPE, Terms(build=Build(sequence=sequence), now=self.now), WORDING)
        )
        return decision.verdict, decision.rule

    def scan(self) -> tuple[str, str]:
        """Scan the registry, and return the verdict on the newest tag, and the verdict's rule."""
        decision = self._one(Job("scan", (), SCOPE, Terms(now=self.now), WORDING))
        return decision.verdict, decision.rule

    def hold(self, reason: str) -> Judged:
        return self._by_hand(Intent("hold", Hold(reason, "jane", NOW)))

    def release(self, *, discard: bool = False) -> Judged:
        return self._by_hand(Intent("release", discard=discard))

    def rollback(self, to: str, *images: str, hold: bool = True, reason: str = "") -> Judged:
        held = Hold(reason, "jane", NOW) if hold else None
        return self._by_hand(Intent("rollback", held, not images, to), images)

    def failed(self, tag: str, to: str = "") -> Judged:
        """Roll back because a test of this version has failed."""
        intent = Intent(
            "rollback", Hold("", "ci", NOW), whole=False, to=to, failed=parse_image(f"{WEB}:{tag}")
        )
        return self._by_hand(intent)

    @property
    def value(self) -> str:
        """The tag on the branch."""
        return (
            self.branch.files[target("a")].partition("newTag: ")[2].partition("\n")[0].strip("\"'")
        )

    def _by_hand(self, intent: Intent, images: tuple[str, ...] = ()) -> Judged:
        return self._one(
            Job(intent.verb, (), SCOPE, Terms(now=self.now), WORDING, intent=intent, aliases=images)
        )

    def _one(self, job: Job) -> Judged:
        report = self.run(job)
        found = next(
            one
            for one in report.decisions
            if not job.images or one.candidate.name == job.images[0].name
        )
        self.because = found.because
        return found

    def events(self, *events: Event, source: str = "", check: str = "auto") -> Report:
        """Do a run for these events."""
        images = tuple(dict.fromkeys(one.image for one in events))
        terms = Terms(now=self.now, check=check)
        return self.run(
            Job("run", images, SCOPE, terms, WORDING, events=events, source_repository=source)
        )

    def _answers(self, questions: Collection[Question]) -> dict[Question, Answer]:
        self.asked += questions
        answers = {one: self.answers.get(one.image.tag, self.answer) for one in questions}
        return {one: replace(answer, tags=self.tags) for one, answer in answers.items()}

    def run(self, job: Job) -> Report:
        """Do a whole run, in which this is the only repository."""
        world = fake_world(
            applications=lambda: [Found(one, "applications.json:1") for one in (self.app, *self.others)],
            locate=lambda _origin: None,
            repository=lambda _url, _subscription: self.branch.opened(), now=lambda: 0.0, sleep=lambda _seconds: None,
            jitter=lambda: 0.5, log=lambda *line: self.log.append(line), follow=self.follow, ancestry=self.ancestry,
            registry=self._answers,
            prove=self.prove, synced=lambda _subscription: self.synced,
        )  # fmt: skip
        with ExitStack() as shielded:
            return run(job, world, shielded, match_of(job), follow_up)


def story(strategy: str = "newest-build", **annotations: str) -> Story:
    """Return the story of the Application `a`, which has the image `web` in its kustomization."""
    return Story(
        application("a", URL, update_strategy=strategy, **annotations),
        Branch({target("a"): KUSTOMIZATION}),
    )


SCOPE = Scope(PREFIX, Narrow(), Defaults())
WORDING = Wording(Person("a", "a@example.com"))
