"""What a request shows to its reviewer in addition to the table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runner_rules import ATTACKS, dangers

from task.forges.opened import Forges
from task.forges.places import Known
from task.forges.reviewing import MOST_RANGES, MOST_UNDONE, SourceRange, source_ranges, undoing
from task.forges.tokens import Tokens
from task.model import Build, Image
from task.templates.change import AppChanges, Change

OLD, NEW = "a" * 40, "b" * 40
WEB = "https://github.com/acme/web"
CENTER = "https://bitbucket.example.com"
PAGES = [
    (WEB, f"{WEB}/compare/{OLD}...{NEW}"),
    ("https://gitlab.com/a/b/web.git", f"https://gitlab.com/a/b/web/-/compare/{OLD}...{NEW}"),
    ("git@gitea.example.com:acme/web", f"https://gitea.example.com/acme/web/compare/{OLD}...{NEW}"),
    ("https://bitbucket.org/acme/web", f"https://bitbucket.org/acme/web/branches/compare/{NEW}%0D{OLD}"),
    (
        f"{CENTER}/scm/OPS/web.git",
        f"{CENTER}/projects/OPS/repos/web/compare/commits?targetBranch={OLD}&sourceBranch={NEW}",
    ),
    (
        "https://dev.azure.com/acme/shop/_git/web",
        f"https://dev.azure.com/acme/shop/_git/web/branchCompare?baseVersion=GC{OLD}&targetVersion=GC{NEW}",
    ),
    ("https://git.acme.example/acme/web", ""),
    ("/srv/git/web", ""),
]  # fmt: skip


def page(repo: str, old: str, new: str) -> str:
    return Forges((), lambda: Tokens({})).range_page(repo, old, new)


def source_range(
    image: str = "ghcr.io/acme/web", repo: str = WEB, old: str = OLD, new: str = NEW
) -> SourceRange:
    return SourceRange(
        image, Build(commit=old, repository=repo), Build(commit=new, repository=repo)
    )


@pytest.mark.parametrize(("repo", "url"), PAGES)
def test_a_commit_range_links_to_its_compare_page(repo: str, url: str) -> None:
    assert page(repo, OLD, NEW) == url


def test_a_commit_range_links_to_a_server_known_to_the_job() -> None:
    forges = Forges((Known("gitlab", "https://git.acme.example"),), lambda: Tokens({}))
    url = forges.range_page("https://git.acme.example/acme/web", OLD, NEW)
    assert url == f"https://git.acme.example/acme/web/-/compare/{OLD}...{NEW}"


def test_source_changes_are_listed_once_per_image() -> None:
    told = source_ranges([source_range(), source_range(), source_range("ghcr.io/acme/api")], page)
    address = f"{WEB}/compare/{OLD}...{NEW}"
    assert told == (
        "**Changes in the source**\n\n"
        f"- `ghcr.io/acme/web`: [`aaaaaaaaaaaa…bbbbbbbbbbbb`]({address})\n"
        f"- `ghcr.io/acme/api`: [`aaaaaaaaaaaa…bbbbbbbbbbbb`]({address})"
    )


@pytest.mark.parametrize(
    "known",
    [
        source_range(old=""),
        source_range(new=""),
        source_range(new=OLD),
        source_range(old="main"),
        source_range(old="../../evil"),
        source_range(repo=""),
        source_range(repo="/srv/git/web"),
        SourceRange(
            "web",
            Build(commit=OLD, repository=WEB),
            Build(commit=NEW, repository="https://github.com/acme/other"),
        ),
    ],
)
def test_unknown_source_ranges_are_omitted(known: SourceRange) -> None:
    assert source_ranges([known], page) == ""


def test_two_spellings_of_one_repository_are_compared() -> None:
    known = SourceRange(
        "web", Build(commit=OLD, repository=f"{WEB}.git"), Build(commit=NEW, repository=WEB)
    )
    assert f"{WEB}/compare/" in source_ranges([known], page)


def test_excess_source_ranges_are_counted() -> None:
    told = source_ranges([source_range(f"ghcr.io/acme/{n}") for n in range(MOST_RANGES + 3)], page)
    assert told.endswith("\n- and 3 more")
    assert told.count("](https://") == MOST_RANGES


def change(alias: str = "web", old: str = "1.0.0", digest: str = "") -> Change:
    image = Image("ghcr.io/acme/web", "ghcr.io", "acme/web")
    return Change(image, alias, old, "1.1.0", old_digest=digest)


def test_the_rollback_command_is_shown() -> None:
    told = undoing([AppChanges("shop", "web", (change(),))])
    assert told == (
        "**To undo this after the merge**, restore the old version and hold it:\n\n"
        "```sh\nimage-update rollback shop/web --alias web --to 1.0.0\n```\n\n"
        "Or revert the merge: that restores the old version until a newer build arrives."
    )


def test_each_image_has_a_separate_rollback_command() -> None:
    digest = f"sha256:{'d' * 64}"
    apps = [AppChanges("shop", "web", (change("web"), change("api", "2.0.0", digest)))]
    told = undoing(apps)
    assert "image-update rollback shop/web --alias web --to 1.0.0\n" in told
    assert f"image-update rollback shop/web --alias api --to 2.0.0@{digest}\n" in told


def test_the_rollback_command_for_an_image_without_an_alias_names_the_application() -> None:
    told = undoing([AppChanges("shop", "web", (change(""),))])
    assert "image-update rollback shop/web --to 1.0.0\n" in told


def test_no_rollback_is_shown_without_changes() -> None:
    assert undoing([]) == ""


def test_the_number_of_rollback_commands_is_limited() -> None:
    apps = [AppChanges("shop", f"web-{n}", (change(),)) for n in range(MOST_UNDONE + 2)]
    told = undoing(apps)
    assert told.count("image-update rollback") == MOST_UNDONE
    assert "# and 2 more\n```" in told


def test_a_first_version_can_only_be_undone_by_a_revert() -> None:
    told = undoing([AppChanges("shop", "web", (change(old=""),))])
    assert "rollback" not in told
    assert "revert the merge" in told


@given(st.sampled_from(ATTACKS) | st.text(max_size=30))
def test_hostile_names_never_become_shell_commands(name: str) -> None:
    for apps in (
        [AppChanges("shop", name, (change(),))],
        [AppChanges("shop", "web", (change(old=name),))],
        [AppChanges("shop", "web", (change(name), change("b")))],
    ):
        told = undoing(apps)
        for line in told.splitlines():
            if line.startswith("image-update "):
                assert not set(line) & set("`$;&|<>(){}'\"\\\n*?!#")
    told = source_ranges([source_range(name, name, name, name), source_range(name)], page)
    assert dangers(told) == []
