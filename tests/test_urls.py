"""URL parsing: every way to write a repository's URL, and every way to disguise a host."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from task.urls import (
    Url,
    as_ssh_url,
    host_and_path,
    is_loopback,
    local_folder,
    login_of,
    normal_url,
    origin,
    split,
    web_page,
    without_login,
    without_query,
)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://Host/a?b#c", Url("https", "", "host", "", "/a", "?b#c")),
        ("HTTPS://u:p%40w@Host:8443/A", Url("https", "u:p%40w", "host", "8443", "/A")),
        ("https://[::1]:5000/", Url("https", "", "[::1]", "5000", "/")),
        ("https://[2001:DB8::1]", Url("https", "", "[2001:db8::1]", "", "")),
        ("https://host:port/", Url("https", "", "host", "port", "/")),
        ("ssh://git@host/a%20b", Url("ssh", "git", "host", "", "/a%20b")),
        ("git+ssh://git@host/a", Url("git+ssh", "git", "host", "", "/a")),
        ("//host:5000/a", Url("", "", "host", "5000", "/a")),
        ("/srv/a", Url("", "", "", "", "/srv/a")),
        ("https://evil@good/", Url("https", "evil", "good", "", "/")),
        ("https://evil#@good/", Url("https", "", "evil", "", "", "#@good/")),
        ("https://evil?@good/", Url("https", "", "evil", "", "", "?@good/")),
        ("https://evil\\@good/", Url("https", "", "evil", "", "/@good/")),
        ("https://evil/@good/", Url("https", "", "evil", "", "/@good/")),
        ("https://a@evil:b@good/", Url("https", "a@evil:b", "good", "", "/")),
        ("https://[::1/", Url("https", "", "", "", "")),
        ("https://good\u2100evil/", Url("https", "", "", "", "")),  # normalization turns ℀ into a/c
        ("", Url("", "", "", "", "")),
    ],
)
def test_splits_a_url_into_its_parts(url: str, parts: Url) -> None:
    assert split(url) == parts


@given(st.text(max_size=20), st.sampled_from(["https://", "http://host/", "ssh://git@", ""]))
def test_any_text_can_be_split(text: str, before: str) -> None:
    split(before + text)
    origin(before + text)
    normal_url(before + text)
    host_and_path(before + text)


@given(st.text(alphabet="abA.:@/\\?#%[]1", max_size=16))
def test_the_host_is_the_same_as_in_urllib3_or_empty(rest: str) -> None:
    """Nothing is compared if urllib3 cannot parse the URL, because then no request would be
    sent.
    """
    try:
        theirs = parse_url(f"https://{rest}").host or ""
    except LocationParseError:
        return
    ours = split(f"https://{rest}").host
    assert ours in (theirs.lower(), "")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://Host/a?b#c", "https://host"),
        ("HTTPS://host:443/", "https://host"),
        ("http://host:80", "http://host"),
        ("http://host:443", "http://host:443"),
        ("https://user:pw@host:8443/x", "https://host:8443"),
        ("https://evil.example#@host/", "https://evil.example"),
        ("https://evil.example?@host/", "https://evil.example"),
        ("https://evil.example\\@host/", "https://evil.example"),
        ("https://evil.example/@host/", "https://evil.example"),
        ("https://[::1]:5000/", "https://[::1]:5000"),
    ],
)
def test_the_origin_matches_the_destination_of_a_request(url: str, expected: str) -> None:
    assert origin(url) == expected
    parsed = parse_url(url)
    port = (
        f":{parsed.port}"
        if parsed.port and (parsed.scheme, parsed.port) not in {("https", 443), ("http", 80)}
        else ""
    )
    assert origin(url) == f"{parsed.scheme}://{parsed.host}{port}"


@pytest.mark.parametrize(
    ("url", "logged"),
    [
        ("https://u:secret@host/p?q=secret#secret", "https://host/p"),
        ("https://host", "https://host/"),
        ("https://host//p", "https://host//p"),
    ],
)
def test_a_logged_url_has_no_query_and_no_login(url: str, logged: str) -> None:
    assert without_query(url) == logged


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:secret@host/x", "https://host/x"),
        ("https://token@host/x", "https://host/x"),
        ("https://a@b:c@host/x", "https://host/x"),
        ("ssh://git:secret@host/x", "ssh://git@host/x"),
        ("https://u:pa#ss?w@host/x", "https://host/x"),
        ("https://u:secret@[bad/x", "https://[bad/x"),
        ("SSH://git:secret@host/x", "SSH://git@host/x"),
        ("git+ssh://git:secret@host/x", "git+ssh://git@host/x"),
        ("https://host/x://y@z", "https://host/x://y@z"),
        ("git@host:x", "git@host:x"),
        ("https://host/x@y", "https://host/x@y"),
        ("https://host:8443/x@y", "https://host:8443/x@y"),
        ("https://[::1]:8443/x@y", "https://[::1]:8443/x@y"),
        ("https://u:se/cret@host/x", "https://host/x"),
        ("https://u:1se/c/ret@host/x", "https://host/x"),
        ("ssh://git:se/cret@host/x", "ssh://git@host/x"),
        ("/srv/a@b", "/srv/a@b"),
    ],
)
def test_a_shown_url_has_no_login(url: str, shown: str) -> None:
    assert without_login(url) == shown


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("https://u:p@host/x", ("u", "p")),
        ("https://a@b:c@host/x@y", ("a@b", "c")),
        ("https://token@host/x", ("token", "")),
        ("https://host/x@y", ("", "")),
        ("git@host:x", ("", "")),
    ],
)
def test_reads_the_login_from_a_url(url: str, login: tuple[str, str]) -> None:
    assert login_of(url) == login


@pytest.mark.parametrize(
    ("url", "ssh"),
    [
        ("git@github.com:acme/x.git", "ssh://git@github.com/acme/x.git"),
        ("github.com:acme/x", "ssh://github.com/acme/x"),
        ("git@host:/acme/x", "ssh://git@host/acme/x"),
        ("[git@host:2222]:acme/x", "ssh://git@host:2222/acme/x"),
        ("[host:2222]:acme/x", "ssh://host:2222/acme/x"),
        ("git@[::1]:acme/x", "ssh://git@[::1]/acme/x"),
        ("[::1]:acme/x", "ssh://[::1]/acme/x"),
        ("ext::sh -c x", "ext::sh -c x"),
        ("/srv/a:b", "/srv/a:b"),
        ("./a:b", "./a:b"),
        ("folder", "folder"),
        ("https://host:1/x", "https://host:1/x"),
    ],
)
def test_the_short_form_of_an_ssh_url_is_expanded(url: str, ssh: str) -> None:
    assert as_ssh_url(url) == ssh


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://github.com/Acme/x.git", "https://github.com/acme/x", True),
        ("https://github.com/acme/x/", "https://GitHub.com/acme/x.git", True),
        ("git@github.com:acme/x.git", "ssh://git@github.com/acme/x", True),
        ("git@github.com:acme/x.git", "ssh://git@github.com:22/acme/x", True),
        ("git@github.com:acme/x.git", "git@github.com:/acme/x", True),
        ("git@github.com:acme/x.git", "ssh://git@github.com//acme/x", True),
        ("git@github.com:acme/x.git", "git+ssh://git@GitHub.com/acme/x", True),
        ("[git@git.example.com:2222]:acme/x", "ssh://git@git.example.com:2222/acme/x.git", True),
        ("https://github.com:443/acme/x", "https://github.com/acme/x", True),
        ("ssh://git@git.example.com:2222/acme/x", "ssh://git@git.example.com/acme/x", False),
        ("ssh://git@git.example.com:222/acme/x", "ssh://git@git.example.com/acme/x", False),
        ("alice@host:x", "bob@host:x", False),
        ("https://github.com/acme/x", "https://github.com/acme/y", False),
        ("https://github.com/acme/x", "git@github.com:acme/x", False),
        ("/srv/Repo.git", "/srv/repo.git", False),
        ("file:///srv/repo.git", "/srv/repo", True),
    ],
)
def test_spellings_of_one_repository_are_recognized_as_equal(
    one: str, other: str, same: bool
) -> None:
    assert (normal_url(one) == normal_url(other)) is same


@pytest.mark.parametrize(
    ("url", "normal"),  # head branch names contain a hash of this URL, so it must not change
    [
        ("https://User@GitHub.com:443/Acme/x.git/", "https://user@github.com/acme/x"),
        ("git@GitHub.com:/Acme/x.git", "ssh://git@github.com/acme/x"),
        ("http://host:8080/a?path=B", "http://host:8080/a?path=b"),
        ("/srv/Repo.git", "file:///srv/Repo"),
        ("host:path", "file://host:path"),
    ],
)
def test_the_normalized_url_is_stable(url: str, normal: str) -> None:
    assert normal_url(url) == normal


@pytest.mark.parametrize(
    "url",
    [
        "https://host/a/b.git",
        "https://user@HOST/A/b",
        "http://host:8080/a/b/",
        "ssh://git@host:22/a/b",
        "git@host:a/b.git",
        "host/a/b",
    ],
)
def test_reads_host_and_path_from_every_kind_of_url(url: str) -> None:
    assert host_and_path(url) == "host/a/b"


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("/srv/x.git", "/srv/x.git"),
        ("file:///srv/x.git", "/srv/x.git"),
        ("file:///srv/a%20b", "/srv/a b"),
        ("file://localhost/srv/x", "//localhost/srv/x"),
    ],
)
def test_a_local_url_is_resolved_to_the_folder_that_git_uses(url: str, folder: str) -> None:
    assert local_folder(url) == folder


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("[::1]", True),
        ("localhost.evil.example", False),
        ("127.evil.example", False),
        ("128.0.0.1", False),
        ("", False),
    ],
)
def test_loopback_hosts_are_recognized(host: str, here: bool) -> None:
    assert is_loopback(host) is here


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("https://git.example.com/a/pulls/1?x=y#z", True),
        ("http://git.example.com/1", True),
        ("https://x/" + "a" * 1990, True),
        ("https://x/" + "a" * 1991, False),
        ("javascript:alert(1)", False),
        ("https://x/ y", False),
        ("https://x/>(y)", False),
        ("https://x/\u202ey", False),
        ("", False),
        (None, False),
    ],
)
def test_only_http_urls_of_limited_length_are_accepted_as_links(
    url: str | None, page: bool
) -> None:
    assert web_page(url) == (url if page else "")
