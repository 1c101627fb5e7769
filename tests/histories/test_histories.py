"""Random histories of runs, people, and merges, compared with a small model of what waits.

The histories are kept in memory, so thousands are possible. In the model, versions are numbers.
They are ordered by tag (semver, alphabetical) or by the sequence of their builds (newest-build).
Hypothesis prints the shortest failing history.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from support.history_scenes import HEAD, NAMES, Scene, told, values_in
from support.memory import Branch
from support.random_histories import LIMIT, OnGit, play

from task.model import Report

NUMBERS = st.integers(1, 9)
NAME = st.sampled_from(NAMES)
TAGS = {"semver": "1.{}.0", "newest-build": "main-{}", "alphabetical": "v0{}"}


@dataclass(frozen=True)
class Known:
    """One image on the base: its version, its newest build, and versions replaced by rollbacks."""

    base: int = 0
    written: tuple[int, bool] | None = None  # a version number, and whether its sequence is known
    replaced: frozenset[int] = frozenset()

    def admits(self, number: int, ordered: bool, *, downgrade: bool = False) -> bool:
        if number == self.base:
            return False
        if not ordered and self.written and self.written[1] and number != self.written[0]:
            return number > self.written[0]
        if number in self.replaced or (self.written and number == self.written[0]):
            return False  # a replay
        return downgrade or not ordered or number > self.base

    def with_build(self, number: int, ordered: bool) -> "Known":
        if not ordered:
            return Known(number, (number, True), self.replaced - {number})
        written = self.written if self.written and number < self.written[0] else None
        return Known(number, written, frozenset(one for one in self.replaced if one > number))

    def back_to(self, number: int, passed: frozenset[int]) -> "Known":
        return Known(
            number,
            self.written or (self.base, False),
            (self.replaced | {self.base} | passed) - {number},
        )


@dataclass
class WaitsOnHead:
    """One build on the head branch, and the state of the base when the build was proposed."""

    number: int
    then: Known
    passed: frozenset[int] | None = None  # versions skipped by a rollback; None for any other build


@dataclass
class Image:
    """The model of one image. 0 is the first version. None means no version."""

    ordered: bool
    known: Known = Known()
    waits: WaitsOnHead | None = None
    own: bool = False  # held individually
    whole: bool = False  # held with the whole Application
    deferred: int | None = None
    history: list[int] = field(default_factory=lambda: [0])  # the base's versions, newest last

    @property
    def held(self) -> bool:
        return self.own or self.whole

    def defer(self, number: int) -> None:
        self.deferred = max(number, self.deferred or 0)

    def again(self, known: Known | None = None) -> None:
        """Decide again about the waiting build, based on the current base."""
        one, known = self.waits, known or self.known
        if one is None:
            return
        if one.number == self.known.base:
            self.waits = None
        elif one.passed is not None:
            self.waits = one if self.known.base == one.then.base else None
        elif one.then != self.known and not known.admits(one.number, self.ordered):
            self.waits = None
        elif self.held:
            self.waits = None
            self.defer(one.number)
        elif self.deferred == one.number:
            self.deferred = None

    def takes(self, number: int, *, downgrade: bool = False) -> bool:
        """Let a build replace the waiting build, unless the waiting build is newer."""
        one = self.waits
        by_arrival = one is not None and one.passed is not None and not self.ordered
        if one is None or number >= one.number or by_arrival or downgrade:
            self.waits = WaitsOnHead(number, self.known)
            return True
        return False

    def event(self, number: int, *, frozen: bool, downgrade: bool = False) -> None:
        """Model the arrival of a build."""
        back = self.held or frozen
        if back and self.known.admits(number, self.ordered, downgrade=downgrade):
            self.defer(number)
        self.again()
        offers = [] if back else [number] if self.deferred is None else [number, self.deferred]
        good = [one for one in offers if self.known.admits(one, self.ordered, downgrade=downgrade)]
        if good and self.takes(max(good), downgrade=downgrade):
            self.deferred = None

    def hold(self, *, whole: bool) -> None:
        self.own, self.whole = self.own or not whole, self.whole or whole
        self.again()

    def release(self, *, frozen: bool) -> None:
        was, self.own, self.whole, self.deferred = self.deferred, False, False, None
        self.again()
        if was is not None and self.known.admits(was, self.ordered):
            if frozen:
                self.defer(was)
            else:
                self.takes(was)

    def rollback(self, number: int, *, held: bool) -> None:
        passed: frozenset[int] = frozenset()
        if number in self.history:
            older = self.history[::-1]
            passed = frozenset(older[: older.index(number)])
        self.own |= held
        if held and self.waits and self.waits.passed is None:
            self.again(None if number == self.known.base else self.known.back_to(number, passed))
        self.waits = None if number == self.known.base else WaitsOnHead(number, self.known, passed)

    def now(self, known: Known) -> None:
        """Set a new version on the base."""
        self.known = known
        self.history.append(known.base)

    def merged(self) -> None:
        """Model a merge of the waiting build."""
        one = self.waits
        if one and one.passed is None:
            self.now(self.known.with_build(one.number, self.ordered))
        elif one and one.passed is not None:
            self.now(self.known.back_to(one.number, one.passed))
        self.waits = None


class KilledError(Exception):
    """A run was killed."""


class Histories(RuleBasedStateMachine):
    """Runs and people on one repository, with one head branch."""

    strategy: ClassVar[str] = "semver"

    @initialize()
    def begin(self) -> None:
        self.ordered = self.strategy != "newest-build"
        self.frozen = False
        self.scene = Scene(self.strategy, first=self.tag(0), made=self.repository)
        self.images = {name: Image(self.ordered) for name in NAMES}
        self.before: dict[str, str] = {}

    def repository(self, files: Mapping[str, str]) -> Branch:
        return Branch(files)

    def tag(self, number: int) -> str:
        return TAGS[self.strategy].format(number)

    @rule(
        names=st.sets(NAME, min_size=1),
        numbers=st.tuples(NUMBERS, NUMBERS, NUMBERS),
        atomic=st.booleans(),
    )
    def event(self, names: set[str], numbers: tuple[int, ...], atomic: bool) -> None:
        builds = dict(
            zip(sorted(names), numbers if self.ordered else numbers[:1] * 3, strict=False)
        )
        self._run(lambda: self._send(builds, atomic=atomic))
        self._arrived(builds)

    @precondition(lambda self: self.ordered)
    @rule(name=NAME, number=NUMBERS)
    def downgrade(self, name: str, number: int) -> None:
        """Let a person allow an older version."""
        self._run(lambda: self._send({name: number}, downgrade=True))
        self._touched(name, lambda image: image.event(number, frozen=self.frozen, downgrade=True))

    @precondition(lambda self: self.ordered)
    @rule(numbers=st.sets(NUMBERS, min_size=1))
    def scan(self, numbers: set[int]) -> None:
        """Scan a registry whose newest tag applies to all images."""
        self._run(lambda: self.scene.scan(*map(self.tag, sorted(numbers))))
        self._arrived(dict.fromkeys(NAMES, max(numbers)))

    @rule(name=NAME, whole=st.booleans())
    def hold(self, name: str, whole: bool) -> None:
        self._run(lambda: self.scene.by_hand("hold", "" if whole else name))
        self._touched("" if whole else name, lambda image: image.hold(whole=whole))

    @rule(name=NAME, whole=st.booleans())
    def release(self, name: str, whole: bool) -> None:
        whole = whole or any(image.whole for image in self.images.values())
        self._run(lambda: self.scene.by_hand("release", "" if whole else name))
        self._touched("" if whole else name, lambda image: image.release(frozen=self.frozen))

    @rule(number=st.integers(0, 9), name=NAME, held=st.booleans())
    def rollback(self, name: str, number: int, held: bool) -> None:
        self._run(lambda: self.scene.by_hand("rollback", name, self.tag(number), held=held))
        self._touched(name, lambda image: image.rollback(number, held=held))

    @rule()
    def freeze(self) -> None:
        """Begin or end a freeze."""
        self.scene.freeze(ends=self.frozen)
        self.frozen = not self.frozen

    @rule(name=NAME, number=NUMBERS)
    def by_hand(self, name: str, number: int) -> None:
        """Let a person edit the base directly, without a run."""
        self.scene.write(name, self.tag(number))
        image = self.images[name]
        if image.known.base != number:
            image.now(Known(number, image.known.written, image.known.replaced))

    @precondition(lambda self: HEAD in self.scene.branch.heads)
    @rule(keep=st.booleans(), style=st.sampled_from(["squash", "merge", "fast-forward"]))
    def merge(self, keep: bool, style: str) -> None:
        """Let a person merge the last decided state, unless Git finds a conflict."""
        if not self.scene.branch.merge(HEAD, keep=keep, style=style):
            return
        after = self.scene.base
        for name, image in self.images.items():
            was = image.waits
            if after[name] != self.tag(image.known.base):
                image.merged()
            # Until the next run, a branch kept after a squash merge still contains the build.
            image.waits = was if keep and style == "squash" else None

    @precondition(lambda self: HEAD in self.scene.branch.heads)
    @rule()
    def delete(self) -> None:
        """Let a person delete the branch. Its releases are lost, so the base's holds remain."""
        self.scene.branch.delete(HEAD)
        whole, held = self.scene.held_on_base
        for name, image in self.images.items():
            image.waits = None
            image.own = image.own or name in held
            image.whole = image.whole or whole

    @rule(
        verb=st.sampled_from(["run", "hold", "release", "rollback"]),
        name=NAME,
        number=NUMBERS,
        other=NAME,
        faster=NUMBERS,
        step=st.sampled_from(["land", "remember", "drop"]),
    )
    def race(self, verb: str, name: str, number: int, other: str, faster: int, step: str) -> None:
        """Let another run win just before a step of this run, and then repeat this run."""
        if verb == "release" and any(image.whole for image in self.images.values()):
            return
        raced = False

        def outrun() -> None:
            nonlocal raced
            raced = True
            self._run(lambda: self._send({other: faster}))

        def this() -> Report:
            if verb == "run":
                return self._send({name: number})
            return self.scene.by_hand(verb, name, self.tag(number))

        self.scene.branch.interrupt = step, outrun
        self._run(this)
        self.scene.branch.interrupt = None
        # A command is remembered before or together with its write. A branch is deleted afterwards.
        first = verb == "run" or step != "drop"
        if raced and first:
            self._arrived({other: faster})
        if verb == "run":
            self._arrived({name: number})
        elif verb == "hold":
            self._touched(name, lambda image: image.hold(whole=False))
        elif verb == "release":
            self._touched(name, lambda image: image.release(frozen=self.frozen))
        else:
            self._touched(name, lambda image: image.rollback(number, held=True))
        if raced and not first:
            self._arrived({other: faster})
        self._run(lambda: self._send({name: number}))
        self._arrived({name: number})

    @rule(name=NAME, number=NUMBERS, step=st.sampled_from(["land", "remember", "drop"]))
    def killed(self, name: str, number: int, step: str) -> None:
        """Kill a run before one of its pushes, and repeat it."""

        def dies() -> None:
            raise KilledError

        self.scene.branch.interrupt = step, dies
        with suppress(KilledError):
            self._send({name: number})
        self.scene.branch.interrupt = None
        self._run(lambda: self._send({name: number}))
        self._arrived({name: number})

    @invariant()
    def it_is_as_the_model_says(self) -> None:
        base = {name: self.tag(one.known.base) for name, one in self.images.items()}
        waits = {name: self.tag(one.waits.number) for name, one in self.images.items() if one.waits}
        there = {name: value for name, value in self.scene.waiting.items() if value != base[name]}
        assert there == {name: value for name, value in waits.items() if value != base[name]}
        assert self.scene.base == base

    def _send(
        self, builds: dict[str, int], *, atomic: bool = False, downgrade: bool = False
    ) -> Report:
        images = [f"{name}:{self.tag(number)}" for name, number in builds.items()]
        sequence = None if self.ordered else next(iter(builds.values()))
        return self.scene.event(*images, sequence=sequence, atomic=atomic, downgrade=downgrade)

    def _arrived(self, builds: dict[str, int]) -> None:
        for name, image in self.images.items():
            if name in builds:
                image.event(builds[name], frozen=self.frozen)
            else:
                image.again()

    def _touched(self, name: str, what: Callable[[Image], None]) -> None:
        for key, image in self.images.items():
            if name in ("", key):
                what(image)
            else:
                image.again()

    def _run(self, call: Callable[[], Report]) -> None:
        """Run, and check the report about builds that were waiting before."""
        # A head with an empty list was already reported by the run that emptied the list. That run
        # lost a race or was killed before it could delete the branch.
        listed = {build.alias for one in self.scene.branch.lists.values() for build in one.builds}
        waiting = self.scene.waiting.items()
        self.before = {name: version for name, version in waiting if name in listed}
        report = call()
        before = self.before
        outcomes = {name: (version, outcome) for name, version, outcome in told(report)}
        after = self.scene.waiting
        for name, version in before.items():
            if after.get(name) == version or version == self.scene.base[name]:
                continue
            assert name in outcomes, f"{name} {version} vanished, and the report does not say so"
            known, outcome = outcomes[name]
            assert (known, outcome) != (version, "waits")
        self.before = after


class ByBuilds(Histories):
    strategy = "newest-build"


class Alphabetical(Histories):
    strategy = "alphabetical"


class OnSomebodysBranch(RuleBasedStateMachine):
    """A branch with people's commits is never replaced: their changes and held versions remain."""

    @initialize()
    def begin(self) -> None:
        self.scene = Scene()
        self.held: set[str] = set()
        self.texts: dict[str, str] = {}
        self.person(0)

    @rule(number=NUMBERS)
    def person(self, number: int) -> None:
        """Let a person push a commit to the branch."""
        self.texts[f"notes-{number}.md"] = f"{len(self.texts)}\n"
        self.scene.branch.commit_on(HEAD, self.texts)

    @rule(name=NAME, number=NUMBERS)
    def edit(self, name: str, number: int) -> None:
        """Let a person edit the base."""
        self.scene.write(name, f"1.{number}.0")

    @rule(builds=st.dictionaries(NAME, NUMBERS, min_size=1))
    def event(self, builds: dict[str, int]) -> None:
        before = self.values
        report = self.scene.event(*(f"{name}:1.{number}.0" for name, number in builds.items()))
        changed = {name for name, value in self.values.items() if value != before[name]}
        assert not changed & self.held
        assert all(before[name] < self.values[name] == f"1.{builds[name]}.0" for name in changed)
        written = {
            one.subscription.entry.alias for one in report.decisions if one.verdict == "update"
        }
        assert written == changed

    @rule(name=NAME, verb=st.sampled_from(["hold", "release"]))
    def by_hand(self, name: str, verb: str) -> None:
        before = self.values
        self.scene.by_hand(verb, name)
        (self.held.add if verb == "hold" else self.held.discard)(name)
        assert all(
            before[other] == value
            for other, value in self.values.items()
            if (other, verb) != (name, "release")
        )
        assert self.values[name] >= before[name]

    @rule(name=NAME, number=NUMBERS)
    def rollback(self, name: str, number: int) -> None:
        before = self.values
        self.scene.by_hand("rollback", name, f"1.{number}.0")
        self.held.add(name)
        assert self.values == {**before, name: f"1.{number}.0"}

    @invariant()
    def what_people_wrote_is_there(self) -> None:
        head = self.scene.branch.heads[HEAD]
        assert head.before is None
        assert {path: head.files.get(path) for path in self.texts} == self.texts

    @property
    def values(self) -> dict[str, str]:
        return values_in(self.scene.branch.heads[HEAD].files)


@pytest.mark.slow
@LIMIT
@pytest.mark.parametrize("machine", [Histories, ByBuilds, Alphabetical, OnSomebodysBranch])
def test_random_histories_in_memory_match_the_model(machine: type[RuleBasedStateMachine]) -> None:
    play(machine, histories=12, steps=20)


class InGit(OnGit, Histories):
    """The same histories in a real repository."""


class InGitByBuilds(InGit):
    strategy = "newest-build"


@pytest.mark.slow
@LIMIT
@pytest.mark.parametrize("machine", [InGit, InGitByBuilds])
def test_random_histories_in_git_match_the_model(machine: type[Histories]) -> None:
    play(machine, histories=2, steps=12)
