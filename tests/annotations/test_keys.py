"""Annotation keys that have no effect, and the keys that were intended."""

import pytest

from task.annotations.keys import FORMER, LONGEST, doubt, doubts, read_image_list
from task.text import differ, nearest

LIST = "web=ghcr.io/acme/web:~1, team/api=acme/api, acme/cron"


def test_each_image_list_entry_has_its_own_key_prefixes() -> None:
    assert read_image_list(LIST).names == {"web", "team_api", "team/api", "acme_cron", "cron"}
    assert read_image_list(LIST).shown == ("web", "team_api", "cron")
    assert read_image_list("web=acme/WEB!, =, broken!").names == {
        "web",
        "",
    }  # an unreadable entry keeps its alias
    assert read_image_list("").names == frozenset()


@pytest.mark.parametrize(
    "key",
    ["image-list", "git-branch", "allow-tags", "web.allow-tags", "team_api.helm.image-tag", "team/api.platforms",
     "cron.ignore-tags", "acme_cron.pin-digest", "web.tag-match", "tag-match", "manifests.image-name",
     "web.plugin.image-spec", "web.helm.image-digest", "pull-request", "write-back-source"],
)  # fmt: skip
def test_known_keys_are_accepted(key: str) -> None:
    assert doubt(key, LIST) is None
    assert doubts({"image-list": LIST, key: "x"}) == ()


@pytest.mark.parametrize(
    ("key", "meant", "name"),
    [
        # in lower case, with `_` and `.` as `-`
        ("Allow-Tags", "allow-tags", ""),
        ("ALLOW_TAGS", "allow-tags", ""),
        ("allow.tags", "allow-tags", ""),
        ("web.allow_tags", "web.allow-tags", "web"),
        ("web-allow-tags", "web.allow-tags", "web"),
        ("web_helm_image_tag", "web.helm.image-tag", "web"),
        ("Web.allow-tags", "web.allow-tags", "web"),
        ("team-api.helm.image-tag", "team_api.helm.image-tag", "team_api"),
        # at most two letters inserted, dropped, replaced, or swapped
        ("allow-tag", "allow-tags", ""),
        ("allowed-tags", "allow-tags", ""),
        ("alow-tag", "allow-tags", ""),
        ("web.alolw-tags", "web.allow-tags", "web"),
        ("web.ignore-tasg", "web.ignore-tags", "web"),
        ("web.update-stratgy", "web.update-strategy", "web"),
        ("platform", "platforms", ""),
        ("pull-secrets", "pull-secret", ""),
        ("web.force-udpate", "web.force-update", "web"),
        ("web.helm.image-tg", "web.helm.image-tag", "web"),
        ("helm.image-nam", "helm.image-name", ""),
        ("web.kustomise.image-name", "web.kustomize.image-name", "web"),
        ("web.manifest.image-name", "web.manifests.image-name", "web"),
        ("web.pin-digests", "web.pin-digest", "web"),
        ("write-back-metod", "write-back-method", ""),
        ("writeback-target", "write-back-target", ""),
        ("write_back_source", "write-back-source", ""),
        ("git-brnach", "git-branch", ""),
        ("git-repositry", "git-repository", ""),
        ("pullrequest", "pull-request", ""),
        ("image-lst", "image-list", ""),
        ("images-list", "image-list", ""),
        # words in a different order
        ("tags-allow", "allow-tags", ""),
        ("web.strategy-update", "web.update-strategy", "web"),
        ("web.image-tag.helm", "web.helm.image-tag", "web"),
        ("list_image", "image-list", ""),
        # tag-match has a newer name
        ("web.tag-mach", "web.allow-tags", "web"),
    ],
)
def test_a_misspelled_key_is_reported_with_the_intended_key(
    key: str, meant: str, name: str
) -> None:
    found = doubt(key, LIST)
    assert found is not None
    assert (found.kind, found.meant, found.name) == ("near", meant, name)
    assert found.governs is (meant != "image-list")
    assert found.hint.startswith(f"rename it to {meant}")


@pytest.mark.parametrize(
    ("key", "kind", "words"),
    [
        ("git-credentials", "former", "use write-back-method: git:secret:<namespace>/<name>"),
        ("git-commit-message", "former", "--commit-message-template"),
        ("git.commit-message-template", "former", "--commit-message-template"),
        ("git-commit-template", "former", "--commit-message-template"),
        ("git-user", "former", "--git-author-name"),
        ("git-commit-email", "former", "--git-author-email"),
        ("web.credentials", "former", "use web.pull-secret"),
        ("old.credentials", "former", "use old.pull-secret"),
        ("credentials", "former", "use pull-secret"),
        ("chart-version", "former", "targetRevision"),
        ("web.git-credentials", "former", "write-back-method"),
        ("web.write-back-target", "level", "use write-back-target for the whole Application"),
        ("old.git-branch", "level", "use git-branch for the whole Application"),
        (
            "a.git-branch",
            "level",
            "use git-branch",
        ),  # an edit distance of two from git-branch, but not a misspelling
        ("old.allow-tags", "orphan", "the aliases are web, team_api, cron"),
        ("a.allow-tags", "orphan", "add a=<image> to image-list"),
        ("wep.allow-tags", "orphan", "did you mean web.allow-tags?"),
        ("old.helm.image-tg", "orphan", "add old=<image> to image-list"),
        ("colour", "unknown", "See the list of annotations"),
        ("web.colour", "unknown", "See the list of annotations"),
        (
            "git-write-back-method",
            "unknown",
            "did you mean write-back-method?",
        ),  # an edit distance of four, so only a guess
        ("web.ignored-tag-list", "unknown", ""),
        ("x" * 10_000, "unknown", "remove it"),
        ("." * 1_000_000, "unknown", "remove it"),
    ],
)
def test_former_misplaced_orphaned_and_unknown_keys_are_distinguished(
    key: str, kind: str, words: str
) -> None:
    found = doubt(key, LIST)
    assert found is not None
    assert found.kind == kind
    assert not found.governs
    assert words in found.hint
    assert len(found.message) < 2 * LONGEST


def test_former_keys_are_not_mistaken_for_misspelled_keys() -> None:
    """Former keys are looked up first, so even a misspelled one is not taken for another key."""
    for key in FORMER:
        found = doubt(key, LIST)
        assert found is not None
        assert found.kind == "former", key


def test_suspicious_keys_are_reported_in_the_order_of_the_annotations() -> None:
    found = doubts(
        {
            "image-list": LIST,
            "allow-tag": "any",
            "web.allow-tags": "any",
            "old.platforms": "linux/amd64",
        }
    )
    assert [(key, one.kind) for key, one in found] == [
        ("allow-tag", "near"),
        ("old.platforms", "orphan"),
    ]


def test_a_per_image_key_without_any_alias_is_reported() -> None:
    ((_, found),) = doubts({"web.allow-tags": "any"})
    assert (found.kind, found.hint) == (
        "orphan", "add web=<image> to image-list, or remove the annotation; no entry has an alias"
    )  # fmt: skip


def test_at_most_ten_aliases_are_shown() -> None:
    many = ", ".join(f"a{number}=acme/a{number}" for number in range(30))
    ((_, found),) = doubts({"image-list": many, "zzzz.allow-tags": "any"})
    assert found.hint.endswith("a8, a9, …")


@pytest.mark.parametrize(
    ("one", "other", "letters"),
    [
        ("web", "web", 0), ("", "", 0), ("wbe", "web", 1), ("we", "web", 1), ("webb", "web", 1), ("wab", "web", 1),
        ("bwe", "web", 2), ("w", "web", 2), ("abc", "web", 3), ("", "web", 3), ("website", "web", 3),
        ("abcdefgh", "bcdefghi", 2), ("acmeweb", "acmewbe", 1),
    ],
)  # fmt: skip
def test_the_edit_distance_of_two_words_is_computed(one: str, other: str, letters: int) -> None:
    assert differ(one, other, 3) == letters == differ(other, one, 3)


def test_the_closest_known_word_is_chosen() -> None:
    assert nearest("helm.image-tage", ("helm.image-name", "helm.image-tag")) == "helm.image-tag"
    assert nearest("tag", ("allow-tags",)) == ""
