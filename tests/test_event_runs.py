"""Runs for events: what a registry has to confirm, which build is newer, and the same events in
every order and grouping.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support import THOROUGH
from support.memory import URL, Branch, Story, story
from support.random_histories import LIMIT
from support.runs import KUSTOMIZATION, WEB, application, target

from task.ci.events.forms import events_in
from task.errors import RegistryDownError, RegistryError
from task.image import parse_image
from task.landing.waiting_list import WaitingList
from task.model import Answer, Build, Event, Image, Report

A, B, C = (f"sha256:{letter * 64}" for letter in "abc")
SOURCE = "https://github.com/acme/web"


def event(tag: str, digest: str = "", at: str = "", image: str = WEB) -> Event:
    at_digest = f"@{digest}" if digest else ""
    return Event(parse_image(f"{image}:{tag}{at_digest}"), "harbor", at)


def line(tag: str, sequence: int, digest: str = "") -> Event:
    return Event(event(tag, digest).image, "lines", build=Build(sequence=sequence), claimed=False)


def verdicts(report: Report) -> list[tuple[str, str]]:
    return [(one.verdict, one.rule) for one in report.decisions]


def test_the_registry_confirms_the_digest_of_an_event() -> None:
    one = story("semver")
    one.answer = Answer(digest=A)
    report = one.events(event("1.1.0", A))
    assert verdicts(report) == [("update", "admitted")]
    assert one.value == "1.1.0"
    (question,) = one.asked
    assert (question.image.tag, question.image.digest, question.facts) == ("1.1.0", "", ("digest",))


@pytest.mark.parametrize("answer", [Answer(exists=False), Answer(digest=B)])
def test_a_forged_event_writes_nothing(answer: Answer) -> None:
    one = story("semver")
    one.answer = answer
    report = one.events(event("1.1.0", A))
    assert verdicts(report) == [("refuse", "not-in-registry")]
    assert (report.exit, one.value) == (0, "1.0.0")


@pytest.mark.parametrize(
    ("error", "code"), [(RegistryDownError("no route"), 75), (RegistryError("odd answer"), 3)]
)
def test_nothing_is_written_for_an_event_if_the_registry_fails(
    error: RegistryError, code: int
) -> None:
    one = story("semver")
    one.answer = Answer(error=error)
    report = one.events(event("1.1.0", A))
    assert verdicts(report) == [("error", "registry")]
    assert (report.exit, one.value) == (code, "1.0.0")


def test_an_unconfirmed_event_is_an_error_but_the_other_event_lands() -> None:
    one = story("semver")
    one.answers = {
        "1.1.0": Answer(digest=A),
        "1.2.0": Answer(error=RegistryDownError("no route")),
    }
    report = one.events(event("1.2.0", B), event("1.1.0", A))
    assert (report.exit, one.value) == (75, "1.1.0")
    assert [problem.rule for problem in report.problems] == ["registry"]


def test_the_registry_is_not_queried_if_the_check_is_off() -> None:
    one = story("semver")
    one.events(event("1.1.0", A), check="never")
    assert (one.asked, one.value) == ([], "1.1.0")


def test_event_lines_from_our_pipeline_are_trusted_without_a_check() -> None:
    one = story("semver")
    one.answer = Answer(exists=False)
    one.events(line("1.1.0", 1, A))
    assert (one.asked, one.value) == ([], "1.1.0")


def test_the_registry_is_not_queried_about_refused_tags() -> None:
    one = story("newest-build", allow_tags="regexp:^main-")
    report = one.events(event("pr-1", A))
    assert verdicts(report) == [("refuse", "allow-tags")]
    assert one.asked == []


def test_an_event_without_a_digest_gets_it_from_the_registry() -> None:
    one = story("digest", image_list=f"web={WEB}:1.0.0")
    one.answer = Answer(digest=A)
    one.events(event("1.0.0"))
    assert f"digest: {A}" in one.branch.files[target("a")]


def test_an_image_of_many_applications_is_looked_up_once() -> None:
    one = Story(
        application("a", "https://git.example/gitops.git", update_strategy="semver"), Branch({})
    )
    files = {target(f"a{number}"): KUSTOMIZATION for number in range(20)}
    one.branch = Branch({target("a"): KUSTOMIZATION, **files})
    one.others = [application(f"a{n}", "https://git.example/gitops.git") for n in range(20)]
    one.answer = Answer(digest=A)
    report = one.events(event("1.1.0", A), event("1.1.0", A))
    assert len(one.asked) == 1
    assert len(report.updates) == 21


# Which build is newer


def dated(one: Story, **dates: str) -> None:
    one.answers = {tag: Answer(digest=A, created=created) for tag, created in dates.items()}


def test_builds_are_ordered_by_the_image_creation_date() -> None:
    one = story("newest-build")
    dated(
        one,
        **{
            "1.0.0": "2026-01-01T00:00:00Z",
            "new": "2026-03-01T00:00:00Z",
            "old": "2026-02-01T00:00:00Z",
        },
    )
    one.events(event("new", A, "2026-11-01T00:00:00Z"), event("old", A, "2026-11-02T00:00:00Z"))
    assert one.value == "new"
    assert verdicts(one.events(event("old", A, "2026-11-03T00:00:00Z"))) == [
        ("refuse", "superseded")
    ]
    assert one.log == []


@pytest.mark.parametrize("pinned", ["true", ""])
def test_an_event_with_two_tags_makes_one_commit(pinned: str) -> None:
    one = story("newest-build", pin_digest=pinned)
    one.answer = Answer(digest=A, created="2026-01-02T00:00:00Z")
    two = event("1.2.3", A), event("1.2", A)
    for _ in range(3):
        one.events(*two)
    assert (one.value, len(one.branch.commits)) == ("1.2", 2)
    one.answer = Answer(digest=B, created="2026-01-03T00:00:00Z")
    one.events(event("1.2.4", B), event("1.2", B))  # 1.2 moves
    assert len(one.branch.commits) == 3


def test_event_times_are_used_only_for_images_without_a_creation_date() -> None:
    one = story("newest-build")
    dated(one, new="1980-01-01T00:00:01Z", old="1970-01-01T00:00:00Z")
    one.events(event("new", A, "2026-11-02T00:00:00Z"), event("old", A, "2026-11-01T00:00:00Z"))
    assert one.value == "new"
    assert [text for level, text in one.log if level == "warning"] == [
        "builds are ordered by the times of their events: the images have no creation date, or the registry was not queried"
    ]
    assert verdicts(one.events(event("old", A, "2026-11-01T00:00:00Z"))) == [
        ("refuse", "superseded")
    ]


def test_the_revision_label_of_the_image_names_its_commit() -> None:
    one = story("newest-build")
    label = "org.opencontainers.image.revision"
    one.answers = {
        tag: Answer(digest=A, created="2026-01-01T00:00:00Z", labels={label: commit * 40})
        for tag, commit in (("new", "b"), ("old", "a"))
    }
    one.ancestry = lambda _repository, new, old: "newer" if new > old else "older"
    for events in ((event("new", A), event("old", A)), (event("old", A), event("new", A))):
        one.events(*events, source=SOURCE)
        assert one.value == "new"
    state = next(text for path, text in one.branch.files.items() if path.endswith(".state"))
    assert "b" * 40 in state
    assert SOURCE in state


def test_the_revision_label_is_used_only_if_the_source_repository_is_given() -> None:
    one = story("newest-build")
    label = {"org.opencontainers.image.revision": "b" * 40}
    one.answer = Answer(digest=A, created="2026-01-01T00:00:00Z", labels=label)
    one.events(event("new", A))
    assert not any("b" * 40 in text for text in one.branch.files.values())
    assert all("labels" not in question.facts for question in one.asked)


# What people can see


def test_the_report_names_the_event_behind_each_update() -> None:
    one = story("semver")
    one.answer = Answer(digest=A)
    (decision,) = one.events(event("1.1.0", A)).updates
    assert decision.event == "registry event, harbor"


def test_a_rebuilt_head_branch_still_names_the_event_behind_each_build() -> None:
    """The head branch is rebuilt together with the updates that already wait there, and so are the
    trailers.
    """
    other = "ghcr.io/acme/other"
    one = story("semver", git_branch="main:updates")
    one.branch.commit({target("b"): KUSTOMIZATION.replace(WEB, other)})
    one.others = [application("b", URL, git_branch="main:updates", image_list=f"other={other}")]
    one.answer = Answer(digest=A)
    one.events(event("1.1.0", A))
    one.events(replace(event("1.1.0", A, image=other), form="quay"))
    one.events(event("1.1.0", A))
    (proposed,) = one.branch.proposals.values()
    assert f"Event: {WEB} registry event, harbor\n" in proposed.message
    assert f"Event: {other} registry event, quay\n" in proposed.message


def test_a_rebuilt_head_branch_keeps_the_digest_of_an_event() -> None:
    """`promote` and `release` use the digest, even though only the tag is written."""
    other = "ghcr.io/acme/other"
    one = story("newest-build", git_branch="main:updates")
    one.branch.commit({target("b"): KUSTOMIZATION.replace(WEB, other)})
    one.others = [application("b", URL, git_branch="main:updates", image_list=f"other={other}")]
    one.events(line("1.1.0", 1, A))
    one.events(Event(event("1.1.0", B, image=other).image, "lines", claimed=False))
    (proposed,) = one.branch.proposals.values()
    assert f"image-digest: {A}" in proposed.files[".image-update/apps/a/argocd_a.state"]


def test_an_event_for_an_untracked_image_is_not_a_warning() -> None:
    one = story("semver")
    one.answer = Answer(digest=A)
    report = one.events(event("1.1.0", A), event("1.1.0", A, image="ghcr.io/acme/other"))
    assert report.problems == ()
    assert ("info", "1 of 2 images is not tracked by any Application") in one.log


# What registries send

DATA = Path(__file__).parent / "data" / "events"
SENT = [
    pytest.param(path.stem, case, id=f"{path.stem}: {case['name']}")
    for path in sorted(DATA.glob("*.json"))
    for case in json.loads(path.read_text())["cases"]
]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "case"), SENT)
def test_each_registry_payload_produces_at_most_one_commit(form: str, case: dict[str, Any]) -> None:
    registry = "registry.example:5000" if form == "nexus" else ""
    found = events_in(json.dumps(case["payload"]), form, registry)
    assert found is not None
    images = {image.name: image for image in map(parse_image, case["images"])}
    tracked = ",".join(f"i{number}={name}" for number, name in enumerate(images))
    entries = "".join(f"- name: {name}\n  newTag: before\n" for name in images)
    text = f"resources: []\nimages:\n{entries}"
    app = application(
        "a", URL, image_list=tracked, update_strategy="newest-build", pin_digest="true"
    )
    one = Story(app, Branch({target("a"): text}))
    says = {event.image.tag: event.image.digest or A for event in found.pushes}
    one.answers = {tag: Answer(digest=digest) for tag, digest in says.items()}
    if not images:
        assert found.pushes == ()
        return
    report = one.events(*found.pushes)
    assert len(one.branch.commits) == 2
    assert len(report.commits) == 1
    for decision in report.updates:
        tag, digest = decision.candidate.tag, decision.candidate.digest
        assert digest == says[tag]
        assert decision.event == f"registry event, {form}"
        name = decision.subscription.entry.image.name
        shown = yaml.safe_load(one.branch.files[target("a")])["images"]
        assert {"name": name, "newTag": tag, "digest": digest} in shown
    assert len(report.updates) == len(report.decisions) == len(images)
    again = one.events(*found.pushes)  # repeating the same events changes nothing
    assert (again.commits, len(one.branch.commits)) == ((), 2)


# Any order, any grouping

Events = list[Event]
TAGS = [f"1.{minor}.0" for minor in range(1, 7)]
KINDS = st.sampled_from(["sequence", "date", "commit", "time"])
STRATEGIES = st.sampled_from(["semver", "newest-build", "alphabetical", "digest"])
BEFORE = st.sampled_from(["nothing", "a newer build", "a hold", "a rollback", "two"])


def minute(number: int) -> str:
    return f"2026-10-01T00:{number:02}:00Z"


def made(
    strategy: str, kind: str, order: list[int], before: str, *, pinned: bool, **more: str
) -> tuple[Story, Events, str]:
    """Return a story, and events whose builds are in this order. The events have either different
    tags, or the same tag with different digests.
    """
    follows = strategy == "digest"
    annotations = {"image_list": f"web={WEB}:1.0.0"} if follows else {}
    annotations |= {"pin_digest": "true"} if pinned else {}
    annotations |= more
    one = story(strategy, **annotations)
    tags = ["1.0.0"] * len(order) if follows else TAGS[: len(order)]
    events = []
    for tag, number in zip(tags, order, strict=True):
        digest = f"sha256:{number:064x}"
        image = event(tag, digest).image
        commit = f"{number:040x}"
        if kind == "sequence":
            events.append(Event(image, "lines", build=Build(sequence=number), claimed=False))
        elif kind == "commit":
            build = Build(commit=commit, repository=SOURCE)
            events.append(Event(image, "lines", build=build, claimed=False))
        else:
            events.append(Event(image, "harbor", minute(number)))
            one.answers[tag] = Answer(
                digest=digest, created=minute(number) if kind == "date" else ""
            )
    one.ancestry = lambda _repository, new, old: "newer" if new > old else "older"
    one.answer = Answer(digest=A)
    check = "never" if kind == "time" or (kind == "date" and follows) else "auto"
    if before == "a newer build" and events:
        one.events(events[order.index(sorted(order)[len(order) // 2])], check=check)
    elif before == "a hold":
        one.hold("a test")
    elif before in ("a rollback", "two") and events:
        for event_before in events[: 2 if before == "two" else 1]:
            one.events(event_before, check=check)
        one.rollback("1.0.0" if not follows else "previous", hold=False)
    return one, events, check


@pytest.mark.slow
@LIMIT
@given(st.data(), STRATEGIES, KINDS, BEFORE, st.booleans())
@settings(max_examples=60 * THOROUGH, deadline=None)
def test_the_order_and_grouping_of_events_do_not_affect_the_tree(
    data: st.DataObject, strategy: str, kind: str, before: str, pinned: bool
) -> None:
    order = data.draw(st.permutations(range(1, data.draw(st.integers(2, 6)) + 1)))
    ends = []
    for number in range(3):
        one, events, check = made(strategy, kind, list(order), before, pinned=pinned)
        if number:
            events = data.draw(st.permutations(events))
            events += (
                data.draw(st.lists(st.sampled_from(events), max_size=2)) if number == 2 else []
            )
        cuts = sorted(data.draw(st.sets(st.integers(1, len(events) - 1)))) if number else []
        for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
            one.events(*events[start:end], check=check)
        ends.append(one.branch.files)
    assert ends[0] == ends[1]
    assert ends[0] == ends[2]


OTHER = "ghcr.io/acme/other"


@pytest.mark.slow
@LIMIT
@given(st.data(), STRATEGIES, KINDS, BEFORE, st.booleans())
@settings(max_examples=20 * THOROUGH, deadline=None)
def test_the_order_and_grouping_of_events_do_not_affect_the_head_branch(
    data: st.DataObject, strategy: str, kind: str, before: str, pinned: bool
) -> None:
    """Two Applications share a head branch. The base does not change until somebody merges that
    branch.
    """
    order = list(data.draw(st.permutations(range(1, data.draw(st.integers(2, 4)) + 1))))
    ends = []
    for number in range(3):
        one, events, check = made(
            strategy, kind, order, before, pinned=pinned, git_branch="main:updates"
        )
        tracked = f"other={OTHER}:1.0.0" if strategy == "digest" else f"other={OTHER}"
        more = {"image_list": tracked, "git_branch": "main:updates", "update_strategy": strategy}
        one.others = [application("b", URL, **more)]
        one.branch.commit({target("b"): KUSTOMIZATION.replace(WEB, OTHER)})
        base = one.branch.files
        events += [replace(event, image=named(event.image, OTHER)) for event in events]
        if number:
            events = data.draw(st.permutations(events))
        if number == 2:
            events += data.draw(st.lists(st.sampled_from(events), max_size=2))
        cuts = sorted(data.draw(st.sets(st.integers(1, len(events) - 1)))) if number else []
        for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
            one.events(*events[start:end], check=check)
        heads = {head: commit.files for head, commit in one.branch.proposals.items()}
        if before != "a hold":
            assert one.branch.files == base
            assert heads
        builds = [waiting(listed) for listed in one.branch.lists.values()]
        assert all(one.branch.merge(head) for head in heads)
        ends.append((heads, builds, one.branch.files))
    assert ends[0] == ends[1]
    assert ends[0] == ends[2]


def named(image: Image, name: str) -> Image:
    """Return this version of another image."""
    return replace(parse_image(name), tag=image.tag, digest=image.digest)


def waiting(one: WaitingList) -> list[tuple[str, str, str, Build]]:
    """Return the builds that wait on a head branch."""
    return [(build.image, build.tag, build.digest, build.build) for build in one.builds]
