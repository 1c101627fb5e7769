"""How `.image-update/config` affects runs: freezes, request groups, and commit messages."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.memory import NOW, SCOPE, URL, WORDING, Story, story
from support.runs import WEB

from task.annotations.application import parse_application
from task.annotations.subscription import Defaults, subscribe
from task.deciding.decide import is_state_path, state_path
from task.deciding.job import AUTHOR, Ask, Job, Terms, Wording
from task.errors import TargetError
from task.image import parse_image
from task.landing.before_deciding import govern
from task.landing.changeset import agreed_wording
from task.landing.head_branches import request_head
from task.landing.ports import Batch
from task.model import File, Person, Snapshot, Subscription, Wishes
from task.repository_config.config import PATH

FROZEN, FREE = "2026-11-22T12:00:00Z", "2026-11-23T12:00:00Z"  # a Sunday, a Monday
WEEKENDS = "version: 1\nfreezes:\n- {schedule: 0 18 * * 5, duration: 62h, reason: no deployments at weekends}\n"


def frozen(text: str = WEEKENDS, strategy: str = "newest-build") -> Story:
    one = story(strategy)
    one.branch.commit({PATH: text})
    one.now = FROZEN
    return one


def test_an_event_during_a_freeze_is_deferred_and_the_reason_names_the_freeze() -> None:
    one = frozen()
    report = one.run(Job("run", (parse_image(f"{WEB}:1.1.0"),), SCOPE, Terms(now=FROZEN), WORDING))
    (found,) = report.decisions
    assert (found.verdict, found.rule) == ("defer", "held")
    assert found.because == (
        "held by the freeze in .image-update/config, line 3, since 2026-11-20 18:00 UTC until 2026-11-23 08:00 UTC: "
        "no deployments at weekends; 1.1.0 is waiting: the first run after the freeze will write it"
    )
    assert one.value == "1.0.0"


@pytest.mark.parametrize("way", ["an older event", "the same event", "release"])
def test_the_first_event_or_release_after_a_freeze_writes_the_newest_build(way: str) -> None:
    one = frozen()
    assert one.event("b", 2) == one.event("c", 3) == ("defer", "held")
    assert one.event("a", 1) == ("refuse", "superseded")
    one.now = FREE
    if way == "release":
        assert one.release().verdict == "update"
    else:
        one.event("a", 1) if way == "an older event" else one.event("c", 3)
    assert one.value == "c"
    assert one.event("c", 3) == ("unchanged", "same")


def test_a_scan_after_a_freeze_writes_the_newest_version() -> None:
    one = frozen(strategy="semver")
    one.tags = ("1.0.0", "1.1.0")
    assert one.scan() == ("defer", "held")
    assert one.event("1.2.0") == ("defer", "held")
    one.now = FREE
    assert one.scan() == ("update", "admitted")
    assert one.value == "1.2.0"


def test_a_release_during_a_freeze_ends_the_hold_but_writes_nothing_yet() -> None:
    one = frozen()
    one.now = FREE
    one.hold("incident")
    one.event("b", 2)
    one.now = FROZEN
    found = one.release()
    assert (found.verdict, found.rule) == ("defer", "held")
    assert found.because.startswith("released: it was held by jane")
    assert "; still held by the freeze in .image-update/config, line " in found.because
    assert found.because.count("no deployments at weekends") == 1
    assert found.because.endswith("; release cannot end a freeze")
    assert one.value == "1.0.0"
    one.now = FREE
    assert one.event("a", 1) == ("update", "admitted")
    assert one.value == "b"


def test_a_release_during_a_freeze_explains_that_it_does_not_end_the_freeze() -> None:
    one = frozen()
    assert one.event("b", 2) == ("defer", "held")
    waiting = one.release()
    assert waiting.because.startswith("still held by the freeze in .image-update/config, line ")
    assert waiting.because.endswith(
        "run after the freeze will write it; release cannot end a freeze"
    )
    one = frozen()
    found = one.release()
    assert found.verdict == "unchanged"
    assert found.because.startswith("still held by the freeze in .image-update/config, line ")
    assert found.because.endswith("; release cannot end a freeze")


def test_hold_and_rollback_work_during_a_freeze() -> None:
    one = frozen()
    one.now = FREE
    assert one.event("b", 2) == ("update", "admitted")
    one.now = FROZEN
    assert one.rollback("1.0.0").verdict == "update"
    assert one.value == "1.0.0"
    assert one.hold("wait").verdict == "defer"


def test_an_event_for_the_current_version_is_unchanged_during_a_freeze() -> None:
    one = frozen()
    assert one.event("1.0.0") == ("unchanged", "same")


def test_a_freeze_ends_when_it_is_removed_from_the_config() -> None:
    one = frozen()
    one.event("b", 2)
    one.branch.commit({PATH: "version: 1\n"})
    assert one.event("a", 1) == ("update", "admitted")
    assert one.value == "b"


@pytest.mark.parametrize("text", ["", "version: 2\n", "version: 1\nfreeze: []\n"])
def test_no_command_writes_anything_if_the_config_is_broken(text: str) -> None:
    one = frozen(text)
    commits = len(one.branch.commits)
    report = one.run(Job("run", (parse_image(f"{WEB}:1.1.0"),), SCOPE, Terms(now=FREE), WORDING))
    (found,) = report.decisions
    assert (found.verdict, found.rule, report.exit) == ("error", "target", 3)
    assert found.because.startswith(f"{PATH}: line ")
    assert (
        one.rollback("0.9.0").rule == "target"
    )  # not even a command by a person, because the config's rules are unknown
    assert len(one.branch.commits) == commits


Step = tuple[Literal["event", "freeze", "thaw", "hold", "release"], int]
steps = st.lists(
    st.tuples(st.sampled_from(["event", "event", "event", "freeze", "thaw", "hold", "release"]), st.integers(1, 6)),
    min_size=1, max_size=10,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["semver", "newest-build"])
@settings(max_examples=40)
@given(taken=steps, last=st.sampled_from(["event", "scan", "release"]), which=st.integers(0, 9))
def test_no_event_is_lost_because_of_a_freeze(
    strategy: str, taken: list[Step], last: str, which: int
) -> None:
    one = frozen(strategy=strategy)
    one.now = FREE
    built: list[int] = []
    for what, number in taken:
        if what == "event":
            one.event(f"1.{number}.0", number)
            built.append(number)
            one.tags = tuple(f"1.{each}.0" for each in (0, *built))
        elif what in ("freeze", "thaw"):
            one.now = FROZEN if what == "freeze" else FREE
        elif what == "hold":
            one.hold("incident")
        else:
            one.release()
        if one.now == FROZEN:
            assert one.value in {"1.0.0", *(f"1.{each}.0" for each in built)}
    before = one.value
    one.now = FROZEN
    one.release()
    assert one.value == before  # the freeze applies even if no other rule does
    one.now = FREE
    if last == "scan" and strategy == "semver":
        one.scan()
    elif last == "event" and built:
        number = built[which % len(built)]
        one.event(f"1.{number}.0", number)
    else:
        one.release()
    assert one.value == (f"1.{max(built)}.0" if built else "1.0.0")


def subscriptions(**annotations: str) -> list[Subscription]:
    """Return two Applications in one project with two images each, and one in another project."""
    found: list[Subscription] = []
    for name, project in (("a", "shop"), ("b", "shop"), ("c", "blog")):
        item = {
            "metadata": {
                "name": name,
                "namespace": "argocd",
                "annotations": {
                    "p/image-list": "web=acme/web,api=acme/api",
                    "p/write-back-target": "kustomization",
                }
                | {f"p/{key}": value for key, value in annotations.items()},
            },
            "spec": {
                "project": project,
                "source": {"repoURL": URL, "path": f"apps/{name}", "targetRevision": "main"},
            },
        }
        found += subscribe(parse_application(item, "p/"), Defaults()).subscriptions
    return found


class Shows:
    """A repository with a snapshot that contains everything."""

    def read_more(self, snapshot: Snapshot, places: object) -> Snapshot:  # noqa: ARG002
        return snapshot


def under(
    text: str,
    subs: Iterable[Subscription],
    files: dict[str, str] | None = None,
    job: Job | None = None,
) -> tuple[list[Subscription], Wording]:
    """Apply a config to the subscriptions and to the wording."""
    asks = tuple(Ask(sub, (parse_image("acme/web:2"),)) for sub in subs)
    shown = {
        PATH: File(f"version: 1\n{text}\n"),
        **{path: File(one) for path, one in (files or {}).items()},
    }
    job = job or Job("run", (), SCOPE, Terms(now=NOW), Wording(Person("", "")))
    repository: Any = Shows()
    batch, _, job = govern(Batch(repository, "main", asks), Snapshot(URL, "main", "t", shown), job)
    return [ask.subscription for ask in batch.asks], job.wording


@pytest.mark.parametrize(
    ("group", "branches"), [("repository", 1), ("project", 2), ("application", 3), ("image", 2)]
)
def test_pull_requests_are_grouped_as_configured(group: str, branches: int) -> None:
    found, _ = under(f"pullRequests: {{enabled: true, group: {group}}}", subscriptions())
    heads = {request_head(sub, "main") for sub in found}
    assert len(heads) == branches
    assert all(head.startswith("image-update/") for head in heads)


def test_all_images_of_an_application_share_one_pull_request() -> None:
    found, _ = under("pullRequests: {enabled: true, group: application}", subscriptions())
    assert request_head(found[0], "main") == request_head(found[1], "main")


def test_pull_requests_are_grouped_by_image_with_or_without_a_config() -> None:
    subs = [replace(one, pull_request=True) for one in subscriptions()]
    found, _ = under("pullRequests: {enabled: true, labels: [x]}", subscriptions())
    names = [request_head(one, "main") for one in found]
    assert names == [request_head(one, "main") for one in subs]
    assert len(set(names)) == len({one.entry.image.identity for one in subs})


def test_a_rule_requests_pull_requests_only_for_its_applications() -> None:
    found, _ = under(
        "rules: [{match: {projects: [blog]}, pullRequests: {enabled: true}}]", subscriptions()
    )
    assert [sub.pull_request for sub in found] == [False] * 4 + [True] * 2


def worded(text: str, given: Wording, files: dict[str, str] | None = None) -> Wording:
    job = Job("run", (), SCOPE, Terms(now=NOW), given)
    found, wording = under(text, subscriptions(), files, job)
    return agreed_wording(wording, found)


CONFIG = "commit: {authorName: Config, authorEmail: c@example.com, trailers: {Team: config, Ticket: '1'}, signOff: true}"


def test_options_take_precedence_over_the_config_and_the_config_over_defaults() -> None:
    silent = Wording(Person("", ""))
    assert worded("", silent).author == AUTHOR
    found = worded(CONFIG, silent)
    assert found.author == Person("Config", "c@example.com")
    assert found.trailers == (
        ("Team", "config"),
        ("Ticket", "1"),
        ("Signed-off-by", "Config <c@example.com>"),
    )
    spoken = Wording(Person("Given", ""), trailers=(("team", "given"),), sign_off=False)
    found = worded(CONFIG, spoken)
    assert found.author == Person("Given", "c@example.com")
    assert found.trailers == (("team", "given"), ("Ticket", "1"))


def test_a_template_in_the_repository_sets_the_commit_message() -> None:
    text = "commit: {template: .image-update/message}"
    files = {".image-update/message": "chore: {{.AppName}}"}
    assert worded(text, Wording(Person("", "")), files).template == "chore: {{.AppName}}"
    assert (
        worded(text, Wording(Person("", ""), "given")).template == "given"
    )  # the file is not even read


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "there is no file .image-update/message"),
        ({".image-update/message": "{{"}, ".image-update/message: "),
        ({".image-update/message": "x" * 70_000}, "larger than 64 KiB"),
    ],
)
def test_an_unusable_template_is_an_error_in_the_config(files: dict[str, str], words: str) -> None:
    with pytest.raises(TargetError, match=words) as caught:
        worded("commit: {template: .image-update/message}", Wording(Person("", "")), files)
    assert caught.value.subject == PATH
    assert caught.value.message.startswith("line 2: commit.template: ")
    assert "the repository's owners" in caught.value.hint


def test_the_author_in_a_rule_applies_only_to_commits_for_its_applications() -> None:
    text = "rules: [{match: {projects: [blog]}, commit: {authorName: Blog}}]\ncommit: {authorName: All}"
    subs, wording = under(text, subscriptions())
    assert agreed_wording(wording, subs[4:]).author.name == "Blog"
    assert agreed_wording(wording, subs).author.name == "All"


def test_an_empty_config_changes_nothing() -> None:
    subs = subscriptions()
    assert under("", subs)[0] == subs
    assert subs[0].wishes == Wishes()


def test_the_state_of_a_folder_named_config_is_stored_next_to_the_config() -> None:
    (sub, *_) = subscriptions()
    for home in ("config", "config/web"):
        path = state_path(replace(sub, home=home))
        assert path.startswith(".image-update/config-folder/")
        assert is_state_path(path)
    assert state_path(replace(sub, home="configs")).startswith(".image-update/configs/")
    assert not is_state_path(PATH)
