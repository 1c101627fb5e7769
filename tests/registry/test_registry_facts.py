"""Facts about images: the correct result, with no more requests than necessary."""

import json
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from fakes.oci_images import DOCKER, Content, attestation, digest_of, image, index, whole
from fakes.registry_api import RegistryApi

from task.errors import RegistryDownError, RegistryError, TamperedError
from task.http import Limits
from task.image import parse_image
from task.model import Answer, Fact, Image, Question
from task.registry.client import Registry
from task.registry.logins import Logins

pytestmark = pytest.mark.measured

SECOND = "application/vnd.oci.image.index.v1+json"


def registry(**ways: object) -> Registry:
    return Registry(Logins({}), **{"limits": Limits(tries=1), **ways})  # type: ignore[arg-type]


def asked(
    oci_registry: RegistryApi, reference: str, *facts: Fact, platforms: tuple[str, ...] = ()
) -> Question:
    return Question(parse_image(f"{oci_registry.name}/{reference}"), facts, platforms)


def answer(
    oci_registry: RegistryApi, reference: str, *facts: Fact, platforms: tuple[str, ...] = ()
) -> Answer:
    question = asked(oci_registry, reference, *facts, platforms=platforms)
    return registry().answer([question])[question]


ARM = image("linux/arm64/v8", "2026-01-03T00:00:00Z", {"who": "arm"})
AMD = image("linux/amd64", "2026-01-02T00:00:00Z", {"who": "amd"})
S390 = image("linux/s390x", None)
MULTI = index([AMD, ARM, S390], attested=True)
LIST = index([image("linux/amd64", kind=DOCKER), image("linux/arm/v7", kind=DOCKER)], kind=DOCKER)


@pytest.mark.parametrize(
    "content", [image(), image(kind=DOCKER), MULTI, LIST], ids=["oci", "docker", "index", "list"]
)
def test_a_digest_takes_one_head_request(oci_registry: RegistryApi, content: Content) -> None:
    oci_registry.put("acme/api", "1.0", content)
    assert answer(oci_registry, "acme/api:1.0", "digest").digest == content.digest
    assert oci_registry.asked == ["HEAD /v2/acme/api/manifests/1.0"]


def test_existence_and_digest_share_one_head_request(oci_registry: RegistryApi) -> None:
    oci_registry.put("acme/api", "1.0", AMD)
    one, two = (
        asked(oci_registry, "acme/api:1.0", "exists"),
        asked(oci_registry, "acme/api:1.0", "digest"),
    )
    answers = registry().answer([one, two])
    assert answers == {one: Answer(), two: Answer(digest=AMD.digest)}
    assert len(oci_registry.seen) == 1


def test_a_known_digest_takes_no_request(oci_registry: RegistryApi) -> None:
    assert answer(oci_registry, f"acme/api:1.0@{AMD.digest}", "digest").digest == AMD.digest
    assert not oci_registry.seen


@pytest.mark.parametrize(
    "facts", [("exists",), ("digest",), ("created",), ("exists", "platforms", "labels")]
)
@pytest.mark.parametrize("reference", ["acme/api:2.0", "acme/none:1.0", f"acme/api@{ARM.digest}"])
def test_a_missing_image_is_a_valid_result(
    oci_registry: RegistryApi, reference: str, facts: tuple[Fact, ...]
) -> None:
    oci_registry.put("acme/api", "1.0", AMD)
    found = answer(oci_registry, reference, *facts)
    if facts == ("digest",) and "@" in reference:
        assert found == Answer(digest=ARM.digest)
    else:
        assert found == Answer(exists=False)
        assert len(oci_registry.seen) == 1


def test_a_date_requires_the_manifest_and_the_config(oci_registry: RegistryApi) -> None:
    oci_registry.put("acme/api", "1.0", AMD)
    assert answer(oci_registry, "acme/api:1.0", "created", "digest") == Answer(
        digest=AMD.digest, created="2026-01-02T00:00:00Z"
    )
    assert [line.split("/")[0] + line.split("/")[4] for line in oci_registry.asked] == [
        "GET manifests",
        "GET blobs",
    ]


def test_an_indexs_platforms_require_only_its_manifest(oci_registry: RegistryApi) -> None:
    oci_registry.put("acme/api", "1.0", MULTI)
    found = answer(oci_registry, "acme/api:1.0", "platforms", platforms=("windows/amd64",))
    assert found.platforms == ("linux/amd64", "linux/arm64/v8", "linux/s390x")
    assert len(oci_registry.seen) == 1


def test_the_platform_of_a_single_image_is_read_from_its_config(oci_registry: RegistryApi) -> None:
    oci_registry.put("acme/api", "1.0", ARM)
    assert answer(oci_registry, "acme/api:1.0", "platforms").platforms == ("linux/arm64/v8",)


@pytest.mark.parametrize(
    ("platforms", "created", "labels", "requests"),
    [
        ((), "2026-01-03T00:00:00Z", {"who": "arm"}, 7),
        (("linux/amd64",), "2026-01-02T00:00:00Z", {"who": "amd"}, 3),
        (("linux/arm64",), "2026-01-03T00:00:00Z", {"who": "arm"}, 3),
        (("linux/arm64/v7", "linux/amd64"), "2026-01-02T00:00:00Z", {"who": "amd"}, 3),
        (("linux/s390x",), "", {}, 3),
        (("linux/ppc64le",), "", {}, 1),
        (("linux",), "", {}, 1),
    ],
)
def test_date_and_labels_come_from_the_newest_member_for_the_required_platforms(
    oci_registry: RegistryApi,
    platforms: tuple[str, ...],
    created: str,
    labels: dict[str, str],
    requests: int,
) -> None:
    oci_registry.put("acme/api", "1.0", MULTI)
    found = answer(oci_registry, "acme/api:1.0", "created", "labels", platforms=platforms)
    assert (found.created, found.labels, len(oci_registry.seen)) == (created, labels, requests)


def test_an_image_for_another_platform_has_no_date(oci_registry: RegistryApi) -> None:
    oci_registry.put("acme/api", "1.0", ARM)
    assert answer(oci_registry, "acme/api:1.0", "created", platforms=("linux/amd64",)).created == ""


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05.123456789Z"),
        ("2026-01-02T03:04:05.000Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05Z"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00Z", ""),
        ("yesterday", ""),
        ("2026-13-02T03:04:05Z", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_creation_dates_are_normalized(
    oci_registry: RegistryApi, written: str | None, expected: str
) -> None:
    oci_registry.put("acme/api", "1.0", image(created=written))
    assert answer(oci_registry, "acme/api:1.0", "created").created == expected


def test_fractions_of_a_second_determine_the_newest_member(oci_registry: RegistryApi) -> None:
    times = ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.5Z", "2026-01-02T03:04:05.25Z")
    members = [
        image(f"linux/{arch}", time) for arch, time in zip(("a", "b", "c"), times, strict=True)
    ]
    oci_registry.put("acme/api", "1.0", index(members))
    assert answer(oci_registry, "acme/api:1.0", "created").created == times[1]


def schema_1(signed: bool) -> bytes:
    history = {
        "created": "2016-05-06T07:08:09.1Z",
        "architecture": "amd64",
        "os": "linux",
        "config": {"Labels": {"a": "b"}},
    }
    data = {"schemaVersion": 1, "name": "a", "history": [{"v1Compatibility": json.dumps(history)}]}
    body = json.dumps(data, indent=3).encode()
    if not signed:
        return body
    ends = json.dumps(
        {
            "formatLength": len(body) - 2,
            "formatTail": urlsafe_b64encode(body[-2:]).decode().rstrip("="),
        }
    )
    signature = {
        "protected": urlsafe_b64encode(ends.encode()).decode().rstrip("="),
        "signature": "x",
    }
    return body[:-2] + b',\n   "signatures": ' + json.dumps([signature]).encode() + b"\n}"


@pytest.mark.parametrize("signed", [True, False])
def test_the_date_of_a_schema_1_manifest_is_read_from_its_history(
    oci_registry: RegistryApi, signed: bool
) -> None:
    body, digest = schema_1(signed), digest_of(schema_1(False))
    oci_registry.put("acme/api", "1.0", AMD)
    headers = {
        "Content-Type": "application/vnd.docker.distribution.manifest.v1+prettyjws",
        "Docker-Content-Digest": digest,
    }
    oci_registry.faults["/manifests/1.0"] = lambda _: (200, headers, body)
    found = answer(oci_registry, "acme/api:1.0", "created", "labels", "platforms", "digest")
    assert found == Answer(True, digest, "2016-05-06T07:08:09.1Z", ("linux/amd64",), {"a": "b"})


@pytest.mark.parametrize("told", ["", "sha256:1", "md5:" + "a" * 32, "latest"])
def test_the_digest_is_computed_if_its_header_is_missing_or_invalid(
    oci_registry: RegistryApi, told: str
) -> None:
    oci_registry.put("acme/api", "1.0", AMD)
    oci_registry.lies["Docker-Content-Digest"] = told
    assert answer(oci_registry, "acme/api:1.0", "digest").digest == AMD.digest
    assert answer(oci_registry, "acme/api:1.0", "exists") == Answer()


def test_the_manifest_is_fetched_if_head_is_not_supported(
    oci_registry: RegistryApi,
) -> None:
    oci_registry.put("acme/api", "1.0", AMD)
    oci_registry.faults["/manifests/1.0"] = lambda seen: (
        (405, {}, b"") if seen.method == "HEAD" else None
    )
    oci_registry.faults["/manifests/2.0"] = lambda seen: (
        (501, {}, b"") if seen.method == "HEAD" else None
    )
    assert answer(oci_registry, "acme/api:1.0", "digest").digest == AMD.digest
    assert answer(oci_registry, "acme/api:2.0", "exists") == Answer(exists=False)


@pytest.mark.parametrize("where", ["manifest", "blob", "by digest"])
def test_content_that_does_not_match_its_digest_is_rejected(
    oci_registry: RegistryApi, where: str
) -> None:
    oci_registry.put("acme/api", "1.0", AMD)
    config = next(iter(AMD.blobs))
    end = f"/blobs/{config}" if where == "blob" else "/manifests/1.0"
    media_type, body = AMD.manifests[AMD.digest]
    bad = (200, {"Content-Type": media_type, "Docker-Content-Digest": AMD.digest}, body + b" ")
    oci_registry.faults[end] = oci_registry.faults[AMD.digest] = lambda seen: (
        bad if seen.method == "GET" else None
    )
    if where == "blob":
        oci_registry.faults = {end: lambda _: (200, {}, b"{}")}
    reference = f"acme/api@{AMD.digest}" if where == "by digest" else "acme/api:1.0"
    error = answer(oci_registry, reference, "created").error
    assert type(error) is TamperedError
    assert "bytes that do not match" in error.message


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"schemaVersion": 2, "config": {"dig', RegistryDownError),
        (b"<html>Please log in</html>", RegistryError),
        (b"[1]", RegistryError),
        (b"", RegistryError),
        (b"[" * 100_000, RegistryError),
    ],
)
def test_an_invalid_manifest_is_an_error(
    oci_registry: RegistryApi, body: bytes, kind: type[RegistryError]
) -> None:
    oci_registry.put("acme/api", "1.0", AMD)
    oci_registry.faults["/manifests/1.0"] = lambda _: (200, {}, body)
    assert type(answer(oci_registry, "acme/api:1.0", "created").error) is kind


@pytest.mark.parametrize(
    "body",
    [
        {"manifests": "many"},
        {"manifests": [1, {"digest": "latest"}, {"digest": 5}]},
        {
            "manifests": [
                {
                    "digest": "sha256:" + "0" * 64,
                    "platform": "linux",
                    "annotations": [],
                    "mediaType": 7,
                }
            ]
        },
        {"schemaVersion": 2, "config": [], "annotations": "x"},
        {"schemaVersion": 1, "history": [{"v1Compatibility": "{"}]},
        {"schemaVersion": 1, "signatures": [{"protected": 5}], "history": 5},
    ],
)
def test_manifests_of_an_unexpected_shape_do_not_crash(
    oci_registry: RegistryApi, body: object
) -> None:
    oci_registry.put("acme/api", "1.0", AMD)
    oci_registry.faults["/manifests/1.0"] = lambda _: (200, {}, json.dumps(body).encode())
    found = answer(oci_registry, "acme/api:1.0", "created", "platforms", "labels")
    assert found.created == "" or found.error is not None


@pytest.mark.parametrize(
    "config",
    [
        b"5",
        b"{",
        b"",
        b'{"created": 5, "os": [], "architecture": {}, "config": {"Labels": [1]}}',
        b'{"config": null}',
    ],
)
def test_a_config_of_an_unexpected_shape_has_no_facts(
    oci_registry: RegistryApi, config: bytes
) -> None:
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}
    manifest |= {"config": {"digest": digest_of(config)}}
    oci_registry.put(
        "acme/api", "1.0", whole(manifest, str(manifest["mediaType"]), {digest_of(config): config})
    )
    found = answer(oci_registry, "acme/api:1.0", "created", "labels", "platforms")
    assert found == Answer()


def test_the_date_of_an_artifact_is_read_from_its_manifest(
    oci_registry: RegistryApi,
) -> None:
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest_of(b"{}")},
        "annotations": {"org.opencontainers.image.created": "2026-02-03T04:05:06Z"},
    }
    oci_registry.put(
        "acme/api", "1.0", whole(manifest, str(manifest["mediaType"]), {digest_of(b"{}"): b"{}"})
    )
    assert answer(oci_registry, "acme/api:1.0", "created").created == "2026-02-03T04:05:06Z"


def test_members_that_are_not_images_do_not_count(oci_registry: RegistryApi) -> None:
    seen, notes = attestation(ARM)
    notes["platform"] = {
        "os": "linux",
        "architecture": "mips",
    }  # only the annotation reveals this
    signature = image("linux/riscv64", "2030-01-01T00:00:00Z")
    extra = [
        (seen, notes),
        (
            signature,
            {"artifactType": "application/x", "platform": {"os": "linux", "architecture": "x"}},
        ),
    ]
    oci_registry.put("acme/api", "1.0", index([AMD], extra=extra))
    found = answer(oci_registry, "acme/api:1.0", "created", "platforms")
    assert (found.created, found.platforms) == ("2026-01-02T00:00:00Z", ("linux/amd64",))


def test_the_platforms_of_unlabeled_members_are_read_from_their_configs(
    oci_registry: RegistryApi,
) -> None:
    oci_registry.put("acme/api", "1.0", index([], extra=[(AMD, {}), (ARM, {})]))
    found = answer(oci_registry, "acme/api:1.0", "created", "platforms", platforms=("linux/amd64",))
    assert (found.created, found.platforms) == (
        "2026-01-02T00:00:00Z",
        ("linux/amd64", "linux/arm64/v8"),
    )


def test_a_nested_index_is_read(oci_registry: RegistryApi) -> None:
    oci_registry.put("acme/api", "1.0", index([S390], extra=[(index([AMD, ARM]), {})]))
    found = answer(oci_registry, "acme/api:1.0", "created", "platforms")
    assert found.created == "2026-01-03T00:00:00Z"
    assert set(found.platforms) == {"linux/amd64", "linux/arm64/v8", "linux/s390x"}


def test_an_index_that_refers_to_itself_does_not_loop(oci_registry: RegistryApi) -> None:
    inner = index([AMD])
    oci_registry.put("acme/api", "1.0", inner)
    body = json.dumps(
        {"mediaType": SECOND, "manifests": [{"digest": f"sha256:{n:064x}"} for n in range(100)]}
    ).encode()
    oci_registry.faults["/manifests/1.0"] = lambda _: (200, {"Content-Type": SECOND}, body)
    error = answer(oci_registry, "acme/api:1.0", "created").error
    assert error is not None
    assert len(oci_registry.seen) < 80


@pytest.mark.parametrize(
    ("gone", "created"), [((ARM,), "2026-01-02T00:00:00Z"), ((ARM, AMD, S390), None)]
)
def test_missing_index_members_are_skipped_unless_all_are_missing(
    oci_registry: RegistryApi, gone: tuple[Content, ...], created: str | None
) -> None:
    oci_registry.put("acme/api", "1.0", MULTI)
    for one in gone:
        del oci_registry.manifests[one.digest]
    found = answer(oci_registry, "acme/api:1.0", "created")
    assert (found.created if found.error is None else None) == created


def test_at_most_eight_requests_run_in_parallel(oci_registry: RegistryApi) -> None:
    oci_registry.crowd = 8
    oci_registry.delay = 0.02  # a ninth request would have time to arrive
    for number in range(60):
        oci_registry.put("acme/api", str(number), image(seed=str(number)))
    questions = [asked(oci_registry, f"acme/api:{number}", "digest") for number in range(60)]
    answers = registry().answer(questions)
    assert list(answers) == questions
    assert all(found.digest for found in answers.values())
    assert oci_registry.most_at_once == 8


def test_the_same_fact_is_requested_once_per_run(oci_registry: RegistryApi) -> None:
    oci_registry.put("acme/api", "1.0", AMD)
    question, asking = asked(oci_registry, "acme/api:1.0", "digest", "exists"), registry()
    assert asking.answer([question, question]) == asking.answer([question])
    assert len(oci_registry.seen) == 1
    assert asking.answer([]) == {}


def test_queries_about_one_image_share_their_requests(oci_registry: RegistryApi) -> None:
    oci_registry.put("acme/api", "1.0", AMD)
    asking = registry()
    asking.answer(
        [
            asked(oci_registry, "acme/api:1.0", "created"),
            asked(oci_registry, "acme/api:1.0", "labels", "digest"),
        ]
    )
    asking.answer([asked(oci_registry, f"acme/api@{AMD.digest}", "platforms")])
    assert len(oci_registry.seen) == 2


def test_a_warm_cache_fetches_only_new_images(oci_registry: RegistryApi, tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    for number in range(5):
        oci_registry.put("acme/api", str(number), image(created=f"2026-01-0{number + 1}T00:00:00Z"))
    questions = [asked(oci_registry, f"acme/api:{number}", "created") for number in range(6)]
    first = registry(cache_dir=folder).answer(questions)
    oci_registry.seen.clear()
    oci_registry.put("acme/api", "5", image(created="2026-01-06T00:00:00Z"))
    oci_registry.put("acme/api", "0", image(created="2026-01-07T00:00:00Z"))  # a moved tag
    second = registry(cache_dir=folder).answer(questions)
    assert [second[question].created[9] for question in questions] == list("723456")
    assert first[questions[1]] == second[questions[1]]
    assert sorted(line.split()[0] for line in oci_registry.asked) == ["GET"] * 4 + ["HEAD"] * 5


def test_a_broken_cache_does_not_affect_results(oci_registry: RegistryApi, tmp_path: Path) -> None:
    oci_registry.put("acme/api", "1.0", AMD)
    question = asked(oci_registry, "acme/api:1.0", "created")
    registry(cache_dir=str(tmp_path / "c")).answer([question])
    (kept,) = (tmp_path / "c").iterdir()
    assert oct(kept.stat().st_mode & 0o777) == "0o600"
    for text in (
        "",
        "{",
        '{"form": 2}',
        '{"form": 2, "tags": [], "members": {}, "configs": {}}',
        '{"form": 2, "tags": {}, "members": {"x": [{"size": "1"}]}, "configs": {}}',
        "[]",
        '{"form": 9}',
    ):
        kept.write_text(text)
        assert registry(cache_dir=str(tmp_path / "c")).answer([question])[question].created
    assert registry(cache_dir="/dev/null/x").answer([question])[question].created


def test_a_deleted_image_does_not_exist_despite_the_cache(
    oci_registry: RegistryApi, tmp_path: Path
) -> None:
    oci_registry.put("acme/api", "1.0", AMD)
    folder = str(tmp_path)
    registry(cache_dir=folder).answer([asked(oci_registry, "acme/api:1.0", "created")])
    oci_registry.tags["acme/api"].clear()
    oci_registry.manifests.clear()
    for reference in ("acme/api:1.0", f"acme/api@{AMD.digest}"):
        question = asked(oci_registry, reference, "created", "exists")
        assert registry(cache_dir=folder).answer([question])[question] == Answer(exists=False)


@pytest.mark.parametrize("reference", ["a/b", "a?b", "..", "-x", "x" * 200])
def test_an_invalid_tag_is_never_requested(oci_registry: RegistryApi, reference: str) -> None:
    odd = Question(
        Image(f"{oci_registry.name}/acme/api", oci_registry.name, "acme/api", reference),
        ("exists",),
    )
    found = registry().answer([odd])[odd]
    assert isinstance(found.error, RegistryError)
    assert not oci_registry.seen


def test_all_manifest_media_types_are_accepted(oci_registry: RegistryApi) -> None:
    oci_registry.put("acme/api", "1.0", AMD)
    answer(oci_registry, "acme/api:1.0", "digest")
    accepted = oci_registry.seen[0].headers["accept"]
    assert all(f"application/vnd.{kind}" in accepted for kind in (
        "oci.image.manifest.v1+json", "oci.image.index.v1+json",
        "docker.distribution.manifest.v2+json", "docker.distribution.manifest.list.v2+json",
    ))  # fmt: skip
