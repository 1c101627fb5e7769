"""The source commit range that a request shows."""

from task.image import parse_image
from task.landing.pull_request import _source_ranges
from task.landing.waiting_list import BaseThen, ListedBuild, WaitingList
from task.model import Build, Meant, Written
from task.templates.change import AppChanges, Change

SOURCE = "https://github.com/acme/web"
OLD = Build(commit="a" * 40, repository=SOURCE)
NEW = Build(commit="b" * 40, repository=SOURCE)


def ranges(written: Written | None, *, rollback: bool = False) -> list[tuple[str, str]]:
    image = parse_image("ghcr.io/acme/web:main-2")
    listed = ListedBuild(
        "argocd/web",
        "web",
        "ghcr.io/acme/web",
        "main-2",
        "",
        build=NEW,
        base=BaseThen("main-1", written=written),
        rollback=Meant("main-2") if rollback else None,
    )
    change = Change(image, "web", "main-1", "main-2")
    shown = [AppChanges("argocd", "web", (change,))]
    found = _source_ranges(WaitingList("image-update/web", (listed,)), shown)
    return [(each.old.commit, each.new.commit) for each in found]


def test_the_range_spans_the_commits_of_the_recorded_builds() -> None:
    assert ranges(Written("main-1", "", OLD)) == [("a" * 40, "b" * 40)]


def test_no_range_is_shown_without_the_current_versions_commit() -> None:
    assert ranges(None) == []
    assert ranges(Written("main-0", "", OLD)) == []  # overwritten by a person since


def test_a_rollback_shows_no_range() -> None:
    assert ranges(Written("main-1", "", OLD), rollback=True) == []
