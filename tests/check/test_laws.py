"""The laws of `check`, tested with random histories of runs, people, and bots in memory.

(a) Every commit from our own commands passes against its parent, with the same clock and the same
facts. The exception is a rollback without a hold during a freeze. A build that was waiting on a head
branch before a freeze began is held when it is merged, which is the purpose of the check.

`THOROUGH=20` judges twenty times as many commits. A failure shows its seed.
"""

from collections.abc import Callable
from random import Random

import pytest
from support import THOROUGH
from support.history_scenes import HEAD, NAMES, Scene, values_in
from support.judging import Judge
from support.memory import NOW

from task.model import Found, Report

COMMITS = 25 * THOROUGH
STEPS = 15
TAGS = {"semver": "1.{}.0", "newest-build": "main-{}", "alphabetical": "v{}"}
CONFIG = ".image-update/config"


class OurCommits:
    """Runs, and commands run by people, that commit to the base or to a head branch."""

    def __init__(self, strategy: str, direct: bool, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - a history is no secret
        self.strategy = strategy
        branch = "main" if direct else f"main:{HEAD}"
        self.scene = Scene(strategy, branch, first=self.tag(0))
        self.strict = self.random.random() < 0.5
        self.frozen = False
        self.judged = 0
        self.done: list[str] = [f"seed {seed}, strict {self.strict}"]
        self.configure()

    def tag(self, number: int) -> str:
        return TAGS[self.strategy].format(number)

    def configure(self) -> None:
        text = "version: 1\n"
        text += "check: {refuse: [not-newer, superseded]}\n" if self.strict else ""
        if self.frozen:
            text += 'freezes: [{schedule: "* * * * *", duration: 1h, reason: sale}]\n'
        self.scene.branch.commit({CONFIG: text})

    def step(self) -> None:
        """Perform one random action."""
        name = self.random.choice(NAMES)
        number = self.random.randrange(7)
        steps = (
            self.event,
            self.event,
            self.scan,
            self.by_hand,
            self.rollback,
            self.freeze,
            self.person,
            self.merge,
        )
        step = self.random.choice(steps)
        self.done.append(f"{step.__name__} {name} {number}")
        step(name, number)

    def event(self, name: str, number: int) -> None:
        sequence = None if self.strategy == "semver" else number
        self.passes(lambda: self.scene.event(f"{name}:{self.tag(number)}", sequence=sequence))

    def scan(self, _name: str, number: int) -> None:
        if self.strategy == "semver":
            self.passes(lambda: self.scene.scan(self.tag(number), self.tag(1)))

    def by_hand(self, name: str, number: int) -> None:
        verb = "hold" if number < 4 else "release"
        whole = number in (0, 6)
        self.done[-1] += f" {verb}"
        self.passes(lambda: self.scene.by_hand(verb, "" if whole else name))

    def rollback(self, name: str, number: int) -> None:
        held = self.frozen or self.random.random() < 0.5
        self.done[-1] += f" held {held}"
        self.passes(lambda: self.scene.by_hand("rollback", name, self.tag(number), held=held))

    def freeze(self, _name: str, _number: int) -> None:
        self.frozen = not self.frozen
        self.configure()

    def person(self, name: str, number: int) -> None:
        self.scene.write(name, self.tag(number))

    def merge(self, _name: str, _number: int) -> None:
        if HEAD in self.scene.branch.heads:
            self.scene.branch.merge(HEAD)

    def passes(self, call: Callable[[], Report]) -> None:
        """Execute a run or a command, and check each new commit against its parent."""
        branch = self.scene.branch
        number, head = len(branch.commits), branch.heads.get(HEAD)
        memory = dict(branch.memory)
        waited = self.scene.waiting
        call()
        for at in range(number, len(branch.commits)):
            self.check(branch.commits[at - 1], branch.commits[at], memory, {})
        made = branch.heads.get(HEAD)
        if made and made != head:
            self.check(branch.files, made.files, branch.memory, waited)

    def check(
        self,
        base: dict[str, str],
        merged: dict[str, str],
        memory: dict[str, str],
        waited: dict[str, str],
    ) -> None:
        """Check a commit. A build that was waiting before a freeze began stays on its branch, and is held."""
        self.judged += 1
        judge = Judge(now=NOW, memory=memory, past=tuple(self.scene.branch.commits))
        apps = [Found(self.scene.story.app, "applications.json:1")]
        report = judge.report(base, merged, lambda _files: apps)
        told = [
            (one.subscription.entry.alias, one.verdict, one.because)
            for one in report.decisions
            if one.verdict != "update"
            and not (self.frozen and waited.get(one.subscription.entry.alias) == one.candidate.tag)
        ]
        history = "\n".join(self.done)
        values = f"{values_in(base)} {values_in(merged)}"
        assert told == [], f"{history}\n{values}"
        held = any(one.verdict != "update" for one in report.decisions)
        assert report.exit == (5 if held else 0), history


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("strategy", TAGS)
def test_each_of_our_commits_passes_the_check(strategy: str, direct: bool) -> None:
    judged = seed = 0
    while judged < COMMITS:
        history = OurCommits(strategy, direct, seed)
        for _ in range(STEPS):
            history.step()
        judged += history.judged
        seed += 1
