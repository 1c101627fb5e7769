"""Image references and image-list entries: first tables, then properties, such as that printing and
parsing are inverse.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task.errors import Malformed
from task.image import (
    live_image,
    parse_entry,
    parse_image,
    parse_image_list,
    parse_images,
    split_image_list,
    split_registry,
)
from task.model import Entry, Image

CASES = Path(__file__).parent / "data" / "cases"
HEX = "0123456789abcdef" * 4

# Cases in which we deliberately differ from Argo CD Image Updater.
OURS = {
    "parse-registry-5000-classic-web-2": "a port is no tag: registry:5000 is the registry, ~2 the constraint",
    "parse-nginx-53": "values are trimmed",
    "list-empty-entries": "empty entries are dropped",
    "live-13": "localhost:5000 is a registry with a port, so the image is live",
}


def rows(suite: str, op: str) -> list[Any]:
    cases = json.loads((CASES / f"{suite}.json").read_text(encoding="utf-8"))["cases"]
    return [pytest.param(case, id=case["id"]) for case in cases if case["input"]["op"] == op]


def their_registry(image: Image) -> str:
    """What Image Updater calls `registry`: empty unless it is explicit in the reference, and never
    index.docker.io.
    """
    written = image.name.startswith("docker.io/") or image.registry != "docker.io"
    return image.registry if written else ""


@pytest.mark.parametrize("case", rows("image-ref", "parse"))
def test_reads_entries_as_image_updater_does(case: dict[str, Any]) -> None:
    expect = case.get("expect_v1", case["expect"])
    entry = parse_entry(case["input"]["ref"])
    if case["id"] in OURS:
        assert entry.image.name != expect["full_without_tag"]
        return
    assert entry.alias == expect["alias"]
    assert entry.constraint == (expect["tag"] or "")
    assert entry.image.digest == (expect["digest"] or "")
    assert their_registry(entry.image) == expect["registry"]
    assert entry.image.name == expect["full_without_tag"]
    assert replace(entry.image, tag=entry.constraint).reference == expect["full"]


# op=short_form has no counterpart here: Image Updater looks up images by a long and a short name,
# whereas we compare identities.


@pytest.mark.parametrize("case", rows("image-ref", "live_match"))
def test_finds_the_live_image_of_an_entry(case: dict[str, Any]) -> None:
    given_ = case["input"]
    entry = parse_entry(given_["image"])
    wanted = [entry.image]
    if name := given_.get("kustomize_image_name"):
        wanted.insert(0, parse_image(name))
    live = [(text, live_image(text)) for text in given_["live"]]
    found = next(
        (t for want in wanted for t, image in live if image and image.identity == want.identity),
        None,
    )
    if case["id"] in OURS:
        assert found == given_["live"][0]
    else:
        assert found == case.get("expect_v1", case["expect"])


@pytest.mark.parametrize("case", rows("annotations", "list"))
def test_reads_image_lists_as_image_updater_does(case: dict[str, Any]) -> None:
    expect = [entry for entry in case.get("expect_v1", case["expect"]) if entry["name"]]
    entries = parse_image_list(case["input"]["annotations"]["image-list"])
    got = [
        (e.alias, their_registry(e.image), e.image.name, e.constraint)
        for e in entries
        if not isinstance(e, Malformed)
    ]
    assert got == [
        (
            e["alias"],
            e["registry"],
            "/".join(filter(None, (e["registry"], e["name"]))),
            e["constraint"] or "",
        )
        for e in expect
    ]


@pytest.mark.parametrize(
    ("text", "name", "registry", "repository", "tag", "digest"),
    [
        ("nginx", "nginx", "docker.io", "library/nginx", "", ""),
        ("nginx:1.25", "nginx", "docker.io", "library/nginx", "1.25", ""),
        ("library/nginx", "library/nginx", "docker.io", "library/nginx", "", ""),
        ("docker.io/nginx", "docker.io/nginx", "docker.io", "library/nginx", "", ""),
        (
            "docker.io/library/nginx",
            "docker.io/library/nginx",
            "docker.io",
            "library/nginx",
            "",
            "",
        ),
        ("index.docker.io/acme/x:1", "index.docker.io/acme/x", "docker.io", "acme/x", "1", ""),
        (
            "registry-1.docker.io/nginx",
            "registry-1.docker.io/nginx",
            "docker.io",
            "library/nginx",
            "",
            "",
        ),
        ("acme/web", "acme/web", "docker.io", "acme/web", "", ""),
        ("ghcr.io/library/nginx:1", "ghcr.io/library/nginx", "ghcr.io", "library/nginx", "1", ""),
        ("ghcr.io/nginx", "ghcr.io/nginx", "ghcr.io", "nginx", "", ""),
        ("localhost/web:1", "localhost/web", "localhost", "web", "1", ""),
        ("localhost:5000/web", "localhost:5000/web", "localhost:5000", "web", "", ""),
        ("registry:5000/a/b/c:2", "registry:5000/a/b/c", "registry:5000", "a/b/c", "2", ""),
        ("localhost:5000", "localhost", "docker.io", "library/localhost", "5000", ""),
        ("[::1]:5000/web:1", "[::1]:5000/web", "[::1]:5000", "web", "1", ""),
        ("127.0.0.1:5000/web", "127.0.0.1:5000/web", "127.0.0.1:5000", "web", "", ""),
        ("GHCR.io/acme/web", "GHCR.io/acme/web", "ghcr.io", "acme/web", "", ""),
        ("a__b/c-d.e---f_g", "a__b/c-d.e---f_g", "docker.io", "a__b/c-d.e---f_g", "", ""),
        (f"x@sha256:{HEX}", "x", "docker.io", "library/x", "", f"sha256:{HEX}"),
        (f"r:5/x:_T@sha256:{HEX}", "r:5/x", "r:5", "x", "_T", f"sha256:{HEX}"),
        (f"a/x@sha512:{HEX * 2}", "a/x", "docker.io", "a/x", "", f"sha512:{HEX * 2}"),
        (f"a/x:{'t' * 128}", "a/x", "docker.io", "a/x", "t" * 128, ""),
    ],
)
def test_parses_references(
    text: str, name: str, registry: str, repository: str, tag: str, digest: str
) -> None:
    assert parse_image(text) == Image(name, registry, repository, tag, digest)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        (" nginx", "spaces"),
        ("nginx:1\n", "spaces"),
        ("nginx:1\u00a0", "spaces"),
        ("ng\x00inx", "control character"),
        ("nginx:", "nothing follows the colon"),
        ("nginx:-1", "not a tag"),
        ("nginx:1.0+build", "not a tag"),
        ("nginx:1:2", "not a tag"),
        ("nginx:é", "not a tag"),
        (f"nginx:{'t' * 129}", "not a tag"),
        ("acme/web:1/2", "neither a port nor a tag"),
        ("registry:port/x", "neither a port nor a tag"),
        ("nginx@", "not a digest"),
        ("nginx@sha256:abc", "not a digest"),
        (f"nginx@sha256:{HEX.upper()}", "not a digest"),
        (f"nginx@sha256:{HEX}@sha256:{HEX}", "not a digest"),
        (f"nginx@sha256:{HEX}:1", "not a digest"),
        ("Nginx", "uppercase"),
        ("Acme/web:1", "uppercase"),
        ("ghcr.io/Acme/web:1", "uppercase"),
        (":1", "has no image name"),
        (f"@sha256:{HEX}", "has no image name"),
        ("ghcr.io/", "has an empty part"),
        ("/nginx", "has an empty part"),
        ("a//b", "has an empty part"),
        ("a/b/", "has an empty part"),
        ("http://ghcr.io/a/b:1", "begin with 'http://'"),
        ("docker://a/b:1", "begin with 'docker://'"),
        ("-a.b/c:1", "not a registry host"),
        ("a_.b/c:1", "not a registry host"),
        ("a/-b", "cannot be part"),
        ("a/b_", "cannot be part"),
        ("a..b", "cannot be part"),
        ("a=nginx:1", "cannot be part"),
        (HEX, "image ID"),
        (f"sha256:{HEX}", "image ID"),
        ("a" * 256, "longer than 255"),
    ],
)
def test_rejects_invalid_references(text: str, says: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse_image(text)
    assert says in caught.value.message
    assert caught.value.hint


def test_an_error_about_a_very_long_text_shows_only_its_beginning() -> None:
    with pytest.raises(Malformed) as caught:
        parse_image("!" * 100_000)
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize(
    ("values", "references"),
    [
        ([], []),
        (["", " \n"], []),
        (["a:1"], ["a:1"]),
        (["a:1,b:2"], ["a:1", "b:2"]),
        (["a:1 b:2\nc:3\t, d:4,"], ["a:1", "b:2", "c:3", "d:4"]),
        (["b:1", "a:1", "b:1"], ["b:1", "a:1"]),
        (["a:1", "docker.io/a:1"], ["a:1", "docker.io/a:1"]),
        (['["a:1", "b:2"]'], ["a:1", "b:2"]),
        (['\n[ "a:1" ,\n "" ]\n', "c:3"], ["a:1", "c:3"]),
        (["[]"], []),
        (["[::1]:5000/a:1,b:2"], ["[::1]:5000/a:1", "b:2"]),
    ],
)
def test_accepts_several_references_in_one_value(values: list[str], references: list[str]) -> None:
    assert [image.reference for image in parse_images(values)] == references


@pytest.mark.parametrize(
    "value", ["[", '["a:1"', "[1]", '[["a:1"]]', "[null]", '["a b"]', "[a:1]", "a:1,B:2", '"a:1"']
)
def test_rejects_a_value_that_is_not_a_list_of_references(value: str) -> None:
    with pytest.raises(Malformed):
        parse_images([value])


def test_rejects_deeply_nested_json() -> None:
    with pytest.raises(Malformed):
        parse_images(["[" * 100_000])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("nginx", "docker.io/library/nginx:1", True),
        ("library/nginx:2", "index.docker.io/nginx:1", True),
        ("ghcr.io/library/x", "ghcr.io/x", False),
        ("acme/api", "ghcr.io/acme/api", False),
        ("r:5000/a", "r:5001/a", False),
        ("r:5000/a", "r:5000/b", False),
        ("GHCR.io/a/b", "ghcr.io/a/b", True),
        ("library/nginx/x", "nginx/x", False),
    ],
)
def test_compares_repositories_independently_of_their_spelling(
    one: str, other: str, same: bool
) -> None:
    assert (parse_image(one).identity == parse_image(other).identity) is same


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("nginx", ("", "nginx")),
        ("acme/api", ("", "acme/api")),
        ("ghcr.io/acme/api", ("ghcr.io", "acme/api")),
        ("registry:5000/x", ("registry:5000", "x")),
        ("localhost/x", ("localhost", "x")),
        ("docker.io/library/nginx", ("docker.io", "library/nginx")),
        ("acme.io", ("", "acme.io")),
    ],
)
def test_splits_a_name_into_registry_and_repository(name: str, parts: tuple[str, str]) -> None:
    assert split_registry(name) == parts


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("nginx:1", Image("nginx", "docker.io", "library/nginx", "1")),
        ("nginx=ghcr.io/acme/nginx:2", Image("ghcr.io/acme/nginx", "ghcr.io", "acme/nginx", "2")),
        ("a:1=localhost:5000/b:2", Image("localhost:5000/b", "localhost:5000", "b", "2")),
        ("a/b:1@sha256:abcde", Image("a/b", "docker.io", "a/b", "1", "sha256:abcde")),
        ("Acme/Web:1", Image("Acme/Web", "docker.io", "Acme/Web", "1")),
        (" nginx: ", Image("nginx", "docker.io", "library/nginx")),
        ("", None),
        ("a b", None),
        ("a:1 b", None),
        ("a:b/c", None),
        ("a@b c", None),
        ("name=", None),
        ("://", None),
    ],
)
def test_reads_live_images_leniently(text: str, image: Image | None) -> None:
    assert live_image(text) == image


@pytest.mark.parametrize(
    ("text", "alias", "name", "constraint", "digest"),
    [
        ("nginx", "", "nginx", "", ""),
        ("web=nginx:1.21.0", "web", "nginx", "1.21.0", ""),
        (" web = nginx : ^1 ", "web", "nginx", "^1", ""),
        ("web=nginx:", "web", "nginx", "", ""),
        ("=nginx:1", "", "nginx", "1", ""),
        ("a=nginx:>=1.0 <2.0", "a", "nginx", ">=1.0 <2.0", ""),
        ("a=nginx:=1.0", "a", "nginx", "=1.0", ""),
        ("nginx:1.x || ~3", "", "nginx", "1.x || ~3", ""),
        ("nginx:*", "", "nginx", "*", ""),
        ("nginx:>1 <2", "", "nginx", ">1 <2", ""),
        ("nginx:1.2 - 1.4", "", "nginx", "1.2 - 1.4", ""),
        ("localhost:5000/foo:^1.0", "", "localhost:5000/foo", "^1.0", ""),
        ("registry:5000/x:~2", "", "registry:5000/x", "~2", ""),
        ("x=registry:5000/x", "x", "registry:5000/x", "", ""),
        (
            "argoproj/argocd=quay.io/argoproj/argocd:~2.1",
            "argoproj/argocd",
            "quay.io/argoproj/argocd",
            "~2.1",
            "",
        ),
        (
            "ghcr.io:4567/acme/old=gcr.io:1234/acme/new:0.1",
            "ghcr.io:4567/acme/old",
            "gcr.io:1234/acme/new",
            "0.1",
            "",
        ),
        ("acme/old=gcr.io/acme/new", "acme/old", "gcr.io/acme/new", "", ""),
        ("my alias=nginx:1", "my alias", "nginx", "1", ""),
        ("ghcr.io/Acme/Web:^1", "", "ghcr.io/Acme/Web", "^1", ""),
        ("a/b:latest@sha256:abc", "", "a/b", "latest", "sha256:abc"),
        ("a/b@sha256:abc", "", "a/b", "", "sha256:abc"),
    ],
)
def test_parses_entries(text: str, alias: str, name: str, constraint: str, digest: str) -> None:
    entry = parse_entry(text)
    assert (entry.alias, entry.image.name, entry.constraint, entry.image.digest) == (
        alias,
        name,
        constraint,
        digest,
    )
    assert entry.image.tag == ""
    assert entry.text == text.strip()


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("nginx:>=1.0", "use nginx=nginx:>=1.0"),
        ("nginx:=1.0", "use nginx=nginx:=1.0"),
        ("nginx:!=1.0", "use nginx=nginx:!=1.0"),
        ("localhost:5000/a/foo:^1 || >=3", "use foo=localhost:5000/a/foo:^1 || >=3"),
        ("https://ghcr.io/a/b:^1", "use ghcr.io/a/b:^1"),
        ("web=https://ghcr.io/a/b:^1", "use ghcr.io/a/b:^1"),
        ("web=", "use [registry/]name:tag"),
        ("", "use [registry/]name:tag"),
        ("web=:1", "use [registry/]name:tag"),
        ("a:x/b", "use host:port/name:tag"),
        ("a/b@", "use sha256:…"),
        ("a/b@latest", "use sha256:…"),
        ("nginx redis", "a comma between images"),
        ("nginx^1.0", "a colon before the tag"),
        ("a=b=nginx:1", "use letters and digits"),
    ],
)
def test_an_error_about_an_invalid_entry_shows_the_corrected_entry(text: str, hint: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse_entry(text)
    assert hint in caught.value.hint


def test_a_list_keeps_its_order_and_reports_each_problem_in_its_place() -> None:
    text = " web=nginx:^1 ,, redis:>=6,\n  api=acme/api\n,"
    first, second, third = parse_image_list(text)
    assert isinstance(first, Entry)
    assert isinstance(second, Malformed)
    assert isinstance(third, Entry)
    assert split_image_list(text) == (first.text, "redis:>=6", third.text)


WORD = st.text("abcxyz019", min_size=1, max_size=5)
PART = st.builds("".join, st.tuples(WORD, st.sampled_from(["", ".", "_", "__", "-", "---"]), WORD))
HOST = st.sampled_from(
    [
        "",
        "ghcr.io/",
        "docker.io/",
        "index.docker.io/",
        "localhost/",
        "localhost:5000/",
        "r:1/",
        "A.b/",
    ]
)
NAME = st.builds(
    lambda host, parts: host + "/".join(parts), HOST, st.lists(PART, min_size=1, max_size=3)
)
TAG = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,12}", fullmatch=True)
DIGEST = st.text("0123456789abcdef", min_size=64, max_size=64).map("sha256:{}".format)
CONSTRAINT = st.sampled_from(
    ["", "^1", "~1.2-0", ">=1 <2", "1.x || >=3", "*", "latest", "1.2 - 1.4", "!=1.2"]
)


@given(NAME, st.just("") | TAG, st.just("") | DIGEST)
def test_parsing_a_printed_reference_returns_the_same_reference(
    name: str, tag: str, digest: str
) -> None:
    text = name + (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")
    image = parse_image(text)
    assert (image.name, image.tag, image.digest) == (name, tag, digest)
    assert image.reference == text
    assert parse_image(image.reference) == image
    assert live_image(text) == image


@given(PART, NAME, CONSTRAINT, st.just("") | DIGEST)
def test_parsing_a_printed_entry_returns_the_same_entry(
    alias: str, name: str, constraint: str, digest: str
) -> None:
    text = (
        f"{alias}={name}"
        + (f":{constraint}" if constraint else "")
        + (f"@{digest}" if digest else "")
    )
    image = parse_image(f"{name}@{digest}" if digest else name)
    assert parse_entry(text) == Entry(alias, image, constraint, text)
    assert parse_image_list(f" {text},\n{text}") == (parse_entry(text), parse_entry(text))


@given(NAME)
def test_parsing_an_identity_returns_the_same_identity(name: str) -> None:
    image = parse_image(name)
    assert parse_image(image.identity).identity == image.identity


@given(st.text(max_size=40))
def test_any_text_is_either_parsed_or_reported_as_malformed(text: str) -> None:
    live_image(text)
    for entry in parse_image_list(text):
        assert isinstance(entry, (Entry, Malformed))
    try:
        image = parse_image(text)
    except Malformed:
        return
    assert image.reference == text
