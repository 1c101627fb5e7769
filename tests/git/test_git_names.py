"""Addresses and branch names: which are passed to git, and which never are."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task.errors import SourceError
from task.git.names import (
    Address,
    address_of,
    base_branch_name,
    branch_name,
    is_branch_name,
    rewritten,
)
from task.secret import Secret

ADDRESSES = [
    ("https://github.com/acme/gitops.git", Address("https://github.com/acme/gitops.git", "https")),
    ("https://user@host/x", Address("https://host/x", "https", "user")),
    (
        "https://us%40er:p%3Aw@host:8443/x",
        Address("https://host:8443/x", "https", "us@er", Secret("p:w")),
    ),
    ("https://a@b:c@host/x@y", Address("https://host/x@y", "https", "a@b", Secret("c"))),
    ("HTTPS://Host/x", Address("https://Host/x", "https")),
    ("http://host/x", Address("http://host/x", "http")),
    ("ssh://git@host:2222/x", Address("ssh://git@host:2222/x", "ssh")),
    ("ssh://git:secret@host/x", Address("ssh://git@host/x", "ssh")),
    ("git+ssh://git@host/x", Address("git+ssh://git@host/x", "ssh")),
    ("git@github.com:acme/gitops.git", Address("git@github.com:acme/gitops.git", "ssh")),
    ("host:path", Address("host:path", "ssh")),
    ("[::1]:path", Address("[::1]:path", "ssh")),
    ("/srv/git/x.git", Address("/srv/git/x.git", "file")),
    ("/srv/with space/a:b.git", Address("/srv/with space/a:b.git", "file")),
    ("./x:y", Address("./x:y", "file")),
    ("folder", Address("folder", "file")),
    ("file:///srv/x", Address("file:///srv/x", "file")),
    ("git://host/x", Address("git://host/x", "git")),
    ("s3://bucket/x", Address("s3://bucket/x", "s3")),
]
HOSTILE = [
    "",
    "-oProxyCommand=touch /tmp/x",
    "--upload-pack=touch x",
    "ext::sh -c 'touch x'",
    "fd::17",
    "foo+bar.baz::https://host/x",
    "https://host/x\n[core]",
    "https://host/\x1b[31m",
    "ssh://-oProxyCommand=x/y",
    "ssh://-x@host/y",
    "https://-x/y",
    "https:///x",
    "-x:path",
    "user@-x:path",
    "https://us%0aer:x@host/y",
    "https://us:x%00@host/y",
]
# Name, and whether git accepts the name.
BRANCHES = [
    ("main", True),
    ("feature/x", True),
    ("a.b", True),
    ("release-1.2", True),
    ("äöü", True),
    ("a@b", True),
    ("a.locked", True),
    ("{x}", True),
    ("", False),
    ("@", True),
    ("HEAD", False),
    ("-x", False),
    ("/x", False),
    ("x/", False),
    ("x.", False),
    (".x", False),
    ("a/.b", False),
    ("a//b", False),
    ("a..b", False),
    ("a.lock", False),
    ("a.lock/b", False),
    ("a b", False),
    ("a~1", False),
    ("a^", False),
    ("a:b", False),
    ("a?", False),
    ("a*", False),
    ("a[b", False),
    ("a\\b", False),
    ("a@{1}", False),
    ("a\x7fb", False),
    ("a\nb", False),
]


@pytest.mark.parametrize(("url", "address"), ADDRESSES)
def test_addresses_are_parsed(url: str, address: Address) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize("url", HOSTILE)
def test_hostile_addresses_are_rejected(url: str) -> None:
    with pytest.raises(SourceError) as caught:
        address_of(url)
    assert caught.value.hint
    assert caught.value.message.isprintable()


def test_an_address_is_printed_without_its_password() -> None:
    assert "p:w" not in repr(address_of("https://user:p%3Aw@host/x"))


def test_a_password_with_a_slash_is_rejected_without_being_shown() -> None:
    """Programs disagree about which part of such a URL is the host."""
    with pytest.raises(SourceError, match="contains an unescaped slash") as caught:
        address_of("https://bot:se/cret@host/x.git")
    assert (caught.value.subject, "%2F" in caught.value.hint) == ("https://host/x.git", True)


@given(st.text(max_size=20))
def test_every_text_is_an_address_or_a_source_error(text: str) -> None:
    try:
        found = address_of(text)
    except SourceError:
        return
    assert not found.url.startswith("-")
    assert "::" not in found.url.partition("/")[0] or found.protocol in {"file", "ssh"}


@pytest.mark.parametrize(
    ("url", "contacted"),
    [
        ("https://host/team/x", "ssh://git@inner/x"),
        ("https://host/other", "https://mirror/other"),
        ("https://elsewhere/x", "https://elsewhere/x"),
    ],
)
def test_the_longest_matching_prefix_is_rewritten(url: str, contacted: str) -> None:
    pairs = (
        ("https://host/", "https://mirror/"),
        ("https://host/team/", "ssh://git@inner/"),
        ("", "never"),
    )
    assert rewritten(url, pairs) == contacted


@pytest.mark.parametrize(("name", "good"), BRANCHES)
def test_valid_and_invalid_branch_names_are_distinguished(name: str, good: bool) -> None:
    assert is_branch_name(name) is good


@pytest.mark.parametrize(("name", "good"), [row for row in BRANCHES if "\0" not in row[0]])
def test_git_agrees_with_us_about_branch_names(name: str, good: bool) -> None:
    done = subprocess.run(
        ["git", "check-ref-format", "--branch", name], capture_output=True, check=False
    )
    assert (done.returncode == 0) is good


@pytest.mark.slow
@given(st.text(alphabet="a./-@{}~^:?*[\\ l\x01ock", min_size=1, max_size=8))
def test_git_agrees_with_us_about_any_branch_name(name: str) -> None:
    done = subprocess.run(
        ["git", "check-ref-format", f"refs/heads/{name}"], capture_output=True, check=False
    )
    assert is_branch_name(name) is (
        done.returncode == 0 and not name.startswith("-") and name != "HEAD"
    )


def test_the_full_name_of_a_branch_is_shortened() -> None:
    assert branch_name("refs/heads/main") == "main"


@pytest.mark.parametrize(
    "revision", ["a" * 40, "0" * 64, "refs/tags/v1", "v1.*", "-x", ">=1.0 <2", "HEAD~1", ""]
)
def test_revisions_that_are_not_branches_cause_source_errors(revision: str) -> None:
    with pytest.raises(SourceError) as caught:
        base_branch_name(revision)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["a" * 40, "0" * 64])
def test_a_head_branch_may_look_like_a_commit(name: str) -> None:
    assert branch_name(name) == name
