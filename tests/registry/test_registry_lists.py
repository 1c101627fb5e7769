"""Lists of tags, page by page, and of an image's referrers."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from fakes.oci_images import TYPES, Content, digest_of, image, whole
from fakes.registry_api import RegistryApi
from support import costs_at_most

from task.errors import RegistryDownError, RegistryError
from task.http import Limits
from task.image import parse_image
from task.registry.api import LIMITS
from task.registry.client import Registry
from task.registry.logins import Logins

pytestmark = pytest.mark.measured

API = image()
SIGNATURE = "application/vnd.dev.sigstore.bundle.v0.3+json"


@pytest.fixture
def server(oci_registry: RegistryApi) -> RegistryApi:
    oci_registry.put("acme/api", "1.0", API)
    return oci_registry


def registry(limits: Limits = LIMITS) -> Registry:
    return Registry(Logins({}), limits=replace(limits, tries=1))


def tags(server: RegistryApi, repository: str = "acme/api") -> tuple[str, ...]:
    return registry().repository(parse_image(f"{server.name}/{repository}")).tags()


def test_tags_are_listed_once_in_a_run(server: RegistryApi) -> None:
    asking = registry()
    assert [
        asking.repository(parse_image(f"{server.name}/acme/api:{tag}")).tags() for tag in ("1", "2")
    ] == [("1.0",)] * 2
    assert server.asked == ["GET /v2/acme/api/tags/list"]


def test_two_thousand_tags_take_one_request(server: RegistryApi) -> None:
    server.tags["acme/api"] = {f"1.0.{number}": API.digest for number in range(2000)}
    assert len(tags(server)) == 2000
    assert len(server.seen) == 1


def test_a_rejected_page_size_is_replaced_with_a_smaller_size(server: RegistryApi) -> None:
    body = b'{"errors": [{"code": "PAGINATION_NUMBER_INVALID"}]}'
    server.faults["/tags/list"] = lambda seen: (400, {}, body) if "n=10000" in seen.path else None
    assert tags(server) == ("1.0",)
    assert len(server.seen) == 2


@pytest.mark.parametrize("status", [400, 404, 500])
def test_a_failure_on_a_later_page_is_an_error(server: RegistryApi, status: int) -> None:
    server.tags["acme/api"], server.page = {f"1.{number}": API.digest for number in range(9)}, 3
    server.faults["/tags/list"] = lambda seen: (status, {}, b"{}") if "last=" in seen.path else None
    with pytest.raises(RegistryError):
        tags(server)


@pytest.mark.parametrize("link", ["relative", "absolute"])
def test_ten_thousand_tags_are_read_page_by_page(server: RegistryApi, link: str) -> None:
    wanted = {f"1.0.{number}": API.digest for number in range(10_000)}
    server.tags["acme/api"], server.page, server.link = wanted, 1000, link
    assert sorted(tags(server)) == sorted(wanted)
    assert len(server.seen) == 10


@pytest.mark.parametrize(
    "link",
    [
        '<{}/v2/acme/api/tags/list?last=1.0>; rel="next"',
        "</v2/acme/api/tags/list?last=1.0>;rel=next",
        '<list?last=1.0>; title="a"; rel="next"',
        '</v2/acme/api/tags/list?n=5>; rel="prev", </v2/acme/api/tags/list?last=1.0>; rel="next"',
        '<?last=1.0>; rel="next"',
    ],
)
def test_a_link_to_the_next_page_is_followed_in_every_notation(
    server: RegistryApi, link: str
) -> None:
    def page(seen: Any) -> Any:
        if "last=" in seen.path:
            return 200, {}, b'{"tags": ["2.0", "1.0"]}'
        return 200, {"Link": link.format(server.url)}, b'{"tags": ["1.0"]}'

    server.faults["/tags/list"] = page
    assert tags(server) == ("1.0", "2.0")


@pytest.mark.parametrize(
    "link",
    [
        '<https://thief.example/v2/acme/api/tags/list?last=1.0>; rel="next"',
        '<//thief.example/v2/acme/api/tags/list>; rel="next"',
        '</v2/acme/other/tags/list>; rel="next"',
        '</v2/acme/api/tags/list?n=10000>; rel="next"',  # links to the page just requested
        '</elsewhere>; rel="next"',
        '<http://127.0.0.1:1/v2/acme/api/tags/list?last=1.0>; rel="next"',
    ],
)
def test_a_next_link_outside_the_tag_list_is_rejected(server: RegistryApi, link: str) -> None:
    server.faults["/tags/list"] = lambda _: (200, {"Link": link}, b'{"tags": ["1.0"]}')
    with pytest.raises(RegistryError):
        tags(server)
    assert len(server.seen) == 1


def endless(server: RegistryApi, body: bytes, wait: float = 0) -> None:
    """Return page after page, each with a link to the next page."""

    def page(_: Any) -> Any:
        time.sleep(wait)
        return 200, {"Link": f'</v2/acme/api/tags/list?last={len(server.seen)}>; rel="next"'}, body

    server.faults["/tags/list"] = page


def megabyte(*, each: int) -> bytes:
    """Return a page of a million bytes that contains tags of this length."""
    names = (f'"{number:0{each}d}"' for number in range(1_000_000 // (each + 3)))
    return b'{"tags":[%s]}' % ",".join(names).encode()


@pytest.mark.parametrize(
    ("body", "wait", "limit", "most", "says"),
    [
        (b'{"tags": []}', 0, "_MOST_PAGES", 20, "keeps returning more pages"),
        (b'{"tags": []}', 0.2, "_LONGEST", 1.0, "took more than 1 seconds to return one list"),
        (megabyte(each=100), 0, "_MOST_BYTES", 16_000_000, "a list of more than 16,000,000 bytes"),
    ],
    ids=["pages", "time", "size"],
)
def test_endless_pages_are_ended_by_a_limit(
    server: RegistryApi,
    monkeypatch: pytest.MonkeyPatch,
    body: bytes,
    wait: float,
    limit: str,
    most: float,
    says: str,
) -> None:
    monkeypatch.setattr(f"task.registry.repository.{limit}", most)
    endless(server, body, wait)
    with costs_at_most(), pytest.raises(RegistryError, match=says) as refused:
        tags(server)
    assert refused.value.hint


def test_the_number_of_tags_is_limited(
    server: RegistryApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task.registry.repository._MOST_TAGS", 300_000)

    def page(_: Any) -> Any:
        at = len(server.seen)
        names = ",".join(f'"{at}-{number}"' for number in range(50_000)).encode()
        link = f'</v2/acme/api/tags/list?last={at}>; rel="next"'
        return 200, {"Link": link}, b'{"tags":[%s]}' % names

    server.faults["/tags/list"] = page
    with costs_at_most(), pytest.raises(RegistryError, match="lists more than 300,000 tags"):
        tags(server)


def test_the_size_of_a_referrers_list_is_limited(
    server: RegistryApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task.registry.repository._MOST_BYTES", 9_000_000)

    def page(_: Any) -> Any:
        link = f'</v2/acme/api/referrers/{API.digest}?n={len(server.seen)}>; rel="next"'
        return 200, {"Link": link}, b'{"manifests":[%s]}' % (b" " * 1_000_000)

    server.faults[f"/referrers/{API.digest}"] = page
    with costs_at_most(), pytest.raises(RegistryError, match="more than 9,000,000 bytes"):
        referrers(server)


@pytest.mark.parametrize("piece", [b"[],", b"{},", b"1,", b'{"":[]},'])
def test_a_page_with_too_many_values_is_rejected(server: RegistryApi, piece: bytes) -> None:
    server.faults["/tags/list"] = lambda _: (
        200,
        {},
        b'{"tags":[%s[]]}' % (piece * (15_000_000 // len(piece))),
    )
    with (
        costs_at_most(),
        pytest.raises(RegistryError, match="more than 1,000,000 values") as refused,
    ):
        tags(server)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"name": "acme/api", "tags": null}', ()),
        (b'{"name": "acme/api"}', ()),
        (b'{"tags": []}', ()),
        (b'{"tags": ["b", "a", "b"]}', ("b", "a")),
        (b'{"tags": "all"}', RegistryError),
        (b'{"tags": [1]}', RegistryError),
        (b'["1.0"]', RegistryError),
        (b"<html>", RegistryError),
        (b'{"tags": ["1.0", "1', RegistryDownError),
    ],
)
def test_valid_and_invalid_tag_lists_are_distinguished(
    server: RegistryApi, body: bytes, expected: Any
) -> None:
    server.faults["/tags/list"] = lambda _: (200, {}, body)
    if isinstance(expected, tuple):
        assert tags(server) == expected
    else:
        with pytest.raises(RegistryError) as refused:
            tags(server)
        assert type(refused.value) is expected


def test_listing_the_tags_of_a_missing_repository_is_an_error(server: RegistryApi) -> None:
    with pytest.raises(RegistryError, match="has no repository acme/none"):
        tags(server, "acme/none")


def signature(subject: Content, artifact_type: str = SIGNATURE) -> Content:
    manifest = {
        "schemaVersion": 2,
        "mediaType": TYPES["oci"][0],
        "artifactType": artifact_type,
        "config": {
            "mediaType": "application/vnd.oci.empty.v1+json",
            "digest": digest_of(b"{}"),
            "size": 2,
        },
        "layers": [],
        "subject": {"mediaType": TYPES["oci"][0], "digest": subject.digest, "size": subject.size},
    }
    return whole(manifest, TYPES["oci"][0], {digest_of(b"{}"): b"{}"})


def referrers(server: RegistryApi) -> list[str]:
    found = registry().repository(parse_image(f"{server.name}/acme/api")).referrers(API.digest)
    return [one.digest for one in found]


def test_referrers_are_read_with_the_referrers_api(server: RegistryApi) -> None:
    signed, other = signature(API), signature(API, "application/spdx+json")
    server.manifests |= signed.manifests | other.manifests
    assert referrers(server) == [signed.digest, other.digest]


def test_an_empty_referrers_list_takes_no_further_request(server: RegistryApi) -> None:
    assert referrers(server) == []
    assert len(server.seen) == 1


@pytest.mark.parametrize("status", [404, 400, 405])
def test_referrers_are_read_from_the_tag_without_the_referrers_api(
    server: RegistryApi, status: int
) -> None:
    server.faults[f"/referrers/{API.digest}"] = lambda _: (status, {}, b"404 page not found")
    assert referrers(server) == []
    signed = signature(API)
    entry = {
        "mediaType": TYPES["oci"][0],
        "digest": signed.digest,
        "artifactType": SIGNATURE,
        "annotations": {"a": "b"},
    }
    listed = whole(
        {"mediaType": TYPES["oci"][1], "manifests": [entry, 5, {"digest": "x"}]},
        TYPES["oci"][1],
        {},
    )
    server.put("acme/api", API.digest.replace(":", "-"), listed)
    found = registry().repository(parse_image(f"{server.name}/acme/api")).referrers(API.digest)
    assert [(one.digest, one.artifact_type, one.annotations) for one in found] == [
        (signed.digest, SIGNATURE, {"a": "b"})
    ]


def test_an_unavailable_registry_is_not_treated_as_an_empty_referrers_list(
    server: RegistryApi,
) -> None:
    server.faults[f"/referrers/{API.digest}"] = lambda _: (503, {}, b"")
    with pytest.raises(RegistryDownError):
        referrers(server)


def test_manifests_and_blobs_are_read_for_signature_checks(server: RegistryApi) -> None:
    asking = registry().repository(parse_image(f"{server.name}/acme/api"))
    found = asking.manifest("1.0")
    assert found is not None
    assert (found.digest, found.data) == (API.digest, json.loads(API.manifests[API.digest][1]))
    assert asking.manifest("sha256-00.sig") is None
    assert asking.blob(found.data["config"]["digest"]) in API.blobs.values()
    with pytest.raises(RegistryError, match="not a digest"):
        asking.blob("../../secret")
    with pytest.raises(RegistryError, match="does not have the blob"):
        asking.blob("sha256:" + "0" * 64)
