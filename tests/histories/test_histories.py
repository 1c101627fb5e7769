"""Random histories of runs, people and merges, against a small model of what waits. In memory, so by the thousand.

The model knows only versions, for images whose tags order their builds. Hypothesis prints the shortest failing history.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from history_scenes import HEAD, NAMES, Scene, told
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from task.errors import Outpaced
from task.model import Changeset, Landing, Report

NUMBERS = st.integers(1, 9)


def tag(number: int) -> str:
    return f"1.{number}.0"


@dataclass
class Image:
    """What is known of one image; 0 is the first version, None is nothing."""

    base: int = 0
    waiting: int | None = None
    back_from: int | None = None  # where what waits is a rollback
    held: bool = False
    deferred: int | None = None
    replaced: set[int] = field(default_factory=set)  # on the base
    passed: set[int] = field(default_factory=set)  # that the rollback which waits replaces
    history: list[int] = field(default_factory=lambda: [0])  # of the base's values, newest last

    def defer(self, number: int) -> None:
        self.deferred = max(number, self.deferred or 0)

    def again(self) -> None:
        """Decide what waits once more, on the base of now."""
        if self.waiting is None:
            return
        gone = self.waiting <= self.base if self.back_from is None else self.base != self.back_from
        if gone or self.waiting == self.base:
            self.waiting = self.back_from = None
        elif self.held and self.back_from is None:
            self.defer(self.waiting)
            self.waiting = None

    def admits(self, number: int) -> bool:
        return number > self.base and number not in self.replaced

    def event(self, number: int) -> None:
        """A build arrives."""
        self.again()
        if not self.admits(number):
            return
        if self.held:
            self.defer(number)
        elif self.waiting is None or number > self.waiting:
            self.waiting, self.back_from = number, None

    def hold(self) -> None:
        self.again()
        self.held = True
        if self.waiting is not None and self.back_from is None:
            self.defer(self.waiting)
            self.waiting = None

    def release(self) -> None:
        self.again()
        was, self.held, self.deferred = self.deferred, False, None
        if was is not None and self.admits(was) and (self.waiting is None or was >= self.waiting):
            self.waiting, self.back_from = was, None

    def rollback(self, number: int) -> None:
        self.again()
        self.held = True
        if self.waiting is not None and self.back_from is None:
            self.defer(self.waiting)
        self.waiting = self.back_from = None
        if number == self.base:
            return
        self.waiting, self.back_from, self.passed = number, self.base, set()
        if number in self.history:
            older = self.history[::-1]
            self.passed = set(older[: older.index(number)])

    def now(self, number: int) -> None:
        """The base has another value."""
        self.base = number
        self.history.append(number)

    def merged(self) -> None:
        """Somebody merged what waits."""
        if self.waiting is None:
            return
        if self.back_from is not None:
            self.replaced |= {self.back_from, *self.passed}
        else:
            self.replaced = {one for one in self.replaced if one > self.waiting}
        self.replaced.discard(self.waiting)
        self.now(self.waiting)
        self.waiting = self.back_from = None


class Histories(RuleBasedStateMachine):
    """Runs and people on one repository, with one head branch."""

    @initialize()
    def begin(self) -> None:
        self.scene = Scene()
        self.images = {name: Image() for name in NAMES}
        self.before: dict[str, str] = {}

    @rule(builds=st.dictionaries(st.sampled_from(NAMES), NUMBERS, min_size=1))
    def event(self, builds: dict[str, int]) -> None:
        self._run(lambda: self.scene.event(*(f"{name}:{tag(number)}" for name, number in builds.items())))
        for name, image in self.images.items():
            if name in builds:
                image.event(builds[name])
            else:
                image.again()

    @rule(name=st.sampled_from(NAMES))
    def hold(self, name: str) -> None:
        self._run(lambda: self.scene.by_hand("hold", name))
        self._touched(name, Image.hold)

    @rule(name=st.sampled_from(NAMES))
    def release(self, name: str) -> None:
        self._run(lambda: self.scene.by_hand("release", name))
        self._touched(name, Image.release)

    @rule(name=st.sampled_from(NAMES), number=st.integers(0, 9))
    def rollback(self, name: str, number: int) -> None:
        self._run(lambda: self.scene.by_hand("rollback", name, tag(number)))
        self._touched(name, lambda image: image.rollback(number))

    @rule(name=st.sampled_from(NAMES), number=NUMBERS)
    def by_hand(self, name: str, number: int) -> None:
        """A person edits the base; nobody runs."""
        self.scene.write(name, tag(number))
        if self.images[name].base != number:
            self.images[name].now(number)

    @precondition(lambda self: HEAD in self.scene.branch.heads)
    @rule(keep=st.booleans())
    def merge(self, keep: bool) -> None:
        """A person merges what was decided last; lines that changed on the base since stay as they are there."""
        before = self.scene.base
        self.scene.branch.merge(HEAD, keep=keep)
        after = self.scene.base
        for name, image in self.images.items():
            was = image.waiting, image.back_from
            if before[name] != after[name]:
                image.merged()
            # A branch that is kept still has it, until a run looks.
            image.waiting, image.back_from = was if keep else (None, None)

    @precondition(lambda self: HEAD in self.scene.branch.heads)
    @rule()
    def delete(self) -> None:
        """A person deletes the branch."""
        del self.scene.branch.heads[HEAD]
        for image in self.images.values():
            image.waiting = image.back_from = None

    @rule(name=st.sampled_from(NAMES), number=NUMBERS, other=st.sampled_from(NAMES), faster=NUMBERS)
    def race(self, name: str, number: int, other: str, faster: int) -> None:
        """Another run is faster, just before this one lands."""
        branch, land = self.scene.branch, self.scene.branch.land

        def outrun(change: Changeset) -> Landing:
            branch.land = land  # type: ignore[method-assign]
            self._run(lambda: self.scene.event(f"{other}:{tag(faster)}"))
            return land(change)

        branch.land = outrun  # type: ignore[method-assign]
        self._run(lambda: self.scene.event(f"{name}:{tag(number)}"))
        raced = branch.land is land
        branch.land = land  # type: ignore[method-assign]
        if raced:
            self._touched(other, lambda image: image.event(faster))
        self._touched(name, lambda image: image.event(number))

    @rule(name=st.sampled_from(NAMES), number=NUMBERS, step=st.sampled_from(["land", "remember", "drop"]))
    def killed(self, name: str, number: int, step: str) -> None:
        """A run is killed before one of its pushes, and repeated."""

        class KilledError(Exception):
            pass

        def dies(*_args: object) -> Landing:
            raise KilledError

        branch = self.scene.branch
        setattr(branch, step, dies)
        try:
            self.scene.event(f"{name}:{tag(number)}")
        except (KilledError, Outpaced):
            pass
        finally:
            delattr(branch, step)
        self.event({name: number})

    @invariant()
    def it_is_as_the_model_says(self) -> None:
        waits = {name: tag(one.waiting) for name, one in self.images.items() if one.waiting is not None}
        there = {name: value for name, value in self.scene.waiting.items() if value != self.scene.base[name]}
        model = {name: value for name, value in waits.items() if value != self.scene.base[name]}
        assert there == model
        assert self.scene.base == {name: tag(one.base) for name, one in self.images.items()}

    def _touched(self, name: str, what: Callable[[Image], None]) -> None:
        for key, image in self.images.items():
            if key == name:
                what(image)
            else:
                image.again()

    def _run(self, call: Callable[[], Report]) -> None:
        """Run, and look at what the report says of what waited before."""
        self.before = self.scene.waiting
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


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_histories_in_memory() -> None:
    run_state_machine_as_test(
        Histories, settings=settings(max_examples=40, stateful_step_count=15, derandomize=True, deadline=None)
    )
