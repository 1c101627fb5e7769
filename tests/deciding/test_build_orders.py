"""In every order in which five builds can finish, for each strategy and identity, the newest wins.

No Git is involved: a run's decisions and writes are applied event by event to files in memory.
"""

import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import pytest
from support.runs import KUSTOMIZATION, WEB, application, target

from task.annotations.application import PREFIX, parse_application
from task.annotations.subscription import subscribe
from task.deciding.decide import decide
from task.deciding.job import Ask, Terms, Wording
from task.deciding.weigh import Facts
from task.image import parse_image
from task.landing.changeset import prepare_commits
from task.model import Build, File, Person, Snapshot, Subscription

COMMITS = [f"{number:040x}" for number in range(9)]
WORDING = Wording(Person("a", "a@example.com"))
ANCESTRY = {
    ("https://x/y", COMMITS[new], COMMITS[old]): "newer" if new > old else "older"
    for new, old in itertools.permutations(range(9), 2)
}


VERSIONS: dict[str, Callable[[int], str]] = {
    "semver": lambda number: f"1.{number}.0",
    "alphabetical": lambda number: f"2026-11-{number:02}",
    "newest-build": lambda number: f"main-{(number * 7) % 5}{number}",  # not in ascending order
    "digest": lambda number: f"live@sha256:{number:064x}",
}
BUILDS: dict[str, Callable[[int], Build]] = {
    "sequence": lambda number: Build(sequence=number + 8),
    "ancestry": lambda number: Build(commit=COMMITS[number], repository="https://x/y"),
    "created": lambda number: Build(created=f"2026-11-{number:02}T06:00:00Z"),
}


def subscription(strategy: str) -> Subscription:
    image_list = f"web={WEB}" + (":live" if strategy == "digest" else "")
    item = application("a", "https://git/x", image_list=image_list, update_strategy=strategy)
    item["status"] = {"sourceType": "Kustomize"}
    (found,) = subscribe(parse_application(item, PREFIX)).subscriptions
    return found


def after(
    files: Mapping[str, File], sub: Subscription, text: str, identity: Build
) -> tuple[str, dict[str, File]]:
    """Return the (rule, files) that result from one event."""
    terms = Terms(build=identity)
    snapshot = Snapshot("https://git/x", "main", "0" * 40, files)
    decisions = decide(
        snapshot, [Ask(sub, (parse_image(f"{WEB}:{text}"),))], terms, Facts(ANCESTRY)
    )
    prepared = prepare_commits(snapshot, decisions, terms, WORDING)
    new = dict(files)
    for one in prepared.commits:
        new.update(one.changeset.files)
    written = [one for draft in prepared.commits for one in draft.decisions]
    rule = [*written, *prepared.without_commit][0].rule
    return rule, {path: file for path, file in new.items() if file.mode}


def start() -> dict[str, File]:
    old = KUSTOMIZATION.replace("1.0.0", "0-first")
    return {target("a"): File(old), "apps": File("", "040000"), "apps/a": File("", "040000")}


@pytest.mark.parametrize("kind", BUILDS)
@pytest.mark.parametrize("strategy", VERSIONS)
def test_the_newest_of_five_builds_wins_in_all_120_orders(strategy: str, kind: str) -> None:
    sub = subscription(strategy)

    @cache  # orders with a common beginning share its results
    def left_by(*order: int) -> dict[str, File]:
        if not order:
            return start()
        *before, last = order
        return after(left_by(*before), sub, VERSIONS[strategy](last), BUILDS[kind](last))[1]

    for order in itertools.permutations(range(1, 6)):
        assert VERSIONS[strategy](5).rpartition("@")[2] in left_by(*order)[target("a")].text, order


@pytest.mark.parametrize("strategy", VERSIONS)
def test_replays_never_change_anything(strategy: str) -> None:
    sub, chance = subscription(strategy), random.Random(7)  # noqa: S311 - the same plays each time
    for _ in range(50):
        files = start()
        seen = [(number, BUILDS["sequence"](number)) for number in chance.sample(range(1, 9), 6)]
        for number, identity in seen:
            _, files = after(files, sub, VERSIONS[strategy](number), identity)
        for number, identity in chance.choices(seen, k=6):
            rule, new = after(files, sub, VERSIONS[strategy](number), identity)
            assert new == files
            assert rule in ("superseded", "not-newer", "same")


@pytest.mark.parametrize("strategy", ["newest-build", "digest"])
def test_without_a_build_identity_the_last_build_to_arrive_wins(strategy: str) -> None:
    sub = subscription(strategy)
    for order in itertools.permutations(range(1, 5)):
        files = start()
        for number in order:
            _, files = after(files, sub, VERSIONS[strategy](number), Build())
        assert VERSIONS[strategy](order[-1]).rpartition("@")[2] in files[target("a")].text
        assert len(files) == len(start())  # so nothing needs to be remembered


def test_two_builds_with_one_tag_are_distinguished_by_their_sequence_numbers() -> None:
    sub = subscription("semver")
    sub = replace(sub, policy=replace(sub.policy, pin_digest=True))
    digests = [f"1.2.3@sha256:{number:064x}" for number in range(4)]
    files = start()
    for number in (2, 1, 3):
        _, files = after(files, sub, digests[number], Build(sequence=number))
    assert digests[3].rpartition("@")[2] in files[target("a")].text
    rule, new = after(files, sub, digests[2], Build(sequence=2))
    assert (rule, new) == ("superseded", files)
