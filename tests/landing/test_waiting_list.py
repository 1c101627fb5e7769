"""The list of builds waiting on a head branch: the format, and which lists a reader rejects."""

from contextlib import suppress
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from task.errors import TargetError
from task.landing.waiting_list import (
    BaseThen,
    DeclinedBuild,
    HeadCommit,
    KnownRequest,
    ListedBuild,
    ListedRelease,
    WaitingList,
    list_path,
    read_list,
    write_list,
)
from task.model import Build, Hold, Keys, Meant, Written
from task.schemas import load

GOLDEN = Path(__file__).parent.parent / "data/waiting/list"
WHOLE = WaitingList(
    head="image-update/web-0123abcd",
    builds=(
        ListedBuild(
            application="argocd/web",
            alias="web",
            image="ghcr.io/acme/web",
            tag="1.10",
            digest="sha256:" + "a" * 64,
            project="shop",
            target="helmvalues",
            path="apps/web/values.yaml",
            folder="apps/web",
            source="apps/web",
            kind="Helm",
            keys=Keys(tag="image.tag", digest="image.digest"),
            build=Build(7, "github", "c" * 40, "https://git.example/web", "2026-11-22T12:00:00Z"),
            base=BaseThen("1.9", "", Written("1.9"), ("1.8", "1.7")),
            admitted="semver admits it: >=1",
            proof="signature; signer=cosign.pub",
            promoted_from="argocd/staging",
            event="registry event, harbor",
            since="2026-11-22T12:00:00Z",
        ),
        ListedBuild(
            application="argocd/web",
            alias="",
            left_out="apps/web has no ghcr.io/acme/api any more",
            image="ghcr.io/acme/api",
            tag="2.0.0",
            digest="",
            image_digest=f"sha256:{'b' * 64}",
            target="manifests",
            path="apps/web",
            rollback=Meant("previous", "2.0.0", "", "2.1.0"),
            skipped=("2.1.0",),
        ),
    ),
    releases=(
        ListedRelease(
            application="argocd/web",
            folder="apps/web",
            file="apps/web/values.yaml",
            image="web",
            hold=Hold("INC-42", "jane", "2026-11-22T12:00:00Z", "2026-12-01T00:00:00Z"),
            deferred="1.10",
        ),
    ),
    declined=(
        DeclinedBuild("argocd/web", "cron", "ghcr.io/acme/cron", Written("3.0"), "https://x/1"),
    ),
    request=KnownRequest("4", "https://git.example/acme/deploy/pull/4", "open"),
    commit=HeadCommit("1" * 40, "2" * 40),
    replaces=HeadCommit("3" * 40, "4" * 40),
    arrived=False,
    closing="",
)


def test_the_format_of_the_list_is_stable() -> None:
    """Lists outlive the run that writes them, and even the program version."""
    assert write_list(WHOLE) == GOLDEN.read_text(encoding="utf-8")
    data = yaml.load(write_list(WHOLE), yaml.BaseLoader)  # noqa: S506 - strings only
    jsonschema.validate(data, load("waiting.v1"))


@pytest.mark.parametrize("one", [WHOLE, WaitingList("bump"), WaitingList("bump", closing="gone")])
def test_reading_a_written_list_returns_the_same_list(one: WaitingList) -> None:
    assert read_list(write_list(one)) == one


@given(st.text(max_size=50), st.text(max_size=50))
def test_arbitrary_reasons_survive_writing_and_reading(because: str, proof: str) -> None:
    build = ListedBuild("a/b", "", "web", "1", "", target="file", admitted=because, proof=proof)
    (found,) = read_list(write_list(WaitingList("bump", (build,)))).builds
    assert (found.admitted, found.proof) == (because, proof)


GOOD = write_list(WaitingList("bump", (ListedBuild("a/b", "", "web", "1", "", target="file"),)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("application: a/b", "application: b"),
        ("image: web", "image: 'WEB web'"),
        ('tag: "1"', "tag: 'a b'"),
        ("kind: file", "kind: file\n    path: ../x"),
        ("kind: file", "kind: file\n    path: /etc/passwd"),
        ("kind: file", "kind: file\n    path: a//b"),
        ("kind: file", "kind: file\n    more: x"),
        ('version: "1"', 'version: "2"'),
        ("head: bump", "head: &a bump"),
        ("head: bump", "head: !!python/name:os.system x"),
        ("head: bump", "head: bump\nhead: other"),
        ("head: bump", "head: bump\ncommit: {tree: zzz}"),
        ("head: bump", "head: bump\nrequest: {number: -1, state: open}"),
        ("head: bump", f"head: {'x' * 5000}"),
        ("builds:", "releases: [{application: a/b, file: x, folder: ../x}]\nbuilds:"),
        (
            "builds:",
            "releases: [{application: a/b, file: x}, {application: a/b, file: x}]\nbuilds:",
        ),
        ("builds:", "builds: {}\nmore:"),
    ],
)
def test_invalid_lists_are_rejected(old: str, new: str) -> None:
    assert old in GOOD
    assert read_list(GOOD).builds
    with pytest.raises(TargetError):
        read_list(GOOD.replace(old, new))


@given(st.text(max_size=200))
def test_any_text_is_a_list_or_an_error(text: str) -> None:
    with suppress(TargetError):
        read_list(text)


@pytest.mark.parametrize(
    ("head", "path"),
    [
        ("bump", "bump"),
        ("image-update/web-0123abcd", "image-update%2Fweb-0123abcd"),
        ("a%b", "a%25b"),
        ("größe", "gr%C3%B6%C3%9Fe"),
    ],
)
def test_the_path_of_a_list_is_derived_from_the_head_branch(head: str, path: str) -> None:
    assert list_path(head) == f".image-update/waiting/{path}"
    assert len(list_path("x" * 1000)) < 200
