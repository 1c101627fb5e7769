"""Owners' rules that apply to any event, tested with complete runs on an in-memory branch."""

from collections.abc import Collection, Mapping

import pytest
from support.memory import SCOPE, WORDING, Story, story
from support.runs import WEB, target

from task.deciding.job import Job, Terms
from task.image import parse_image
from task.model import Answer, Build, Judged, Question, Verdict
from task.proof import Proof
from task.repository_config.config import PATH

SIGNED = "sha256:" + "1" * 64  # the tag's digest in the registry
UNSIGNED = "sha256:" + "2" * 64
KEY = ".image-update/ci.pub"
SIGNATURES = f"signatures: {{keys: [{KEY}]}}"
PROVENANCE = f"provenance: {{keys: [{KEY}], sourceRepository: https://github.com/acme/web}}"
OLD = f"newTag: 1.0.0\n  digest: sha256:{'0' * 64}"


def signed(questions: Collection[Question]) -> Mapping[Question, Proof | Verdict]:
    """Verify proofs like a registry that contains a signature for only one digest."""
    refused = Verdict("refuse", "signature", "no signature")
    return {
        one: Proof("signature", "ci.pub") if one.image.digest == SIGNED else refused
        for one in questions
    }


def guarded(demand: str, *, pinned: bool = False, **annotations: str) -> Story:
    """Return a story with an Application whose repository requires a proof."""
    found = story("semver", **annotations)
    found.branch.commit({PATH: f"version: 1\n{demand}\n", KEY: "a key"})
    if pinned:
        text = found.branch.files[target("a")]
        found.branch.commit({target("a"): text.replace("newTag: 1.0.0", OLD)})
    found.prove = signed
    found.answer = Answer(digest=SIGNED)
    return found


def build(of: Story, tag: str, digest: str, *, verify: bool = False, check: str = "auto") -> Judged:
    """Send a build event, and return the decision."""
    image = parse_image(f"{WEB}:{tag}@{digest}" if digest else f"{WEB}:{tag}")
    terms = Terms(build=Build(sequence=7), now=of.now, verify=verify, check=check)
    (found,) = of.run(Job("run", (image,), SCOPE, terms, WORDING)).decisions
    return found


@pytest.mark.slow
@pytest.mark.parametrize("check", ["auto", "always"])
@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("demand", [SIGNATURES, PROVENANCE])
@pytest.mark.parametrize(
    ("digest", "verdict", "written"),
    [(UNSIGNED, "refuse", ""), (SIGNED, "update", SIGNED), ("", "update", SIGNED)],
)
def test_a_required_proof_is_checked_for_the_events_digest(
    demand: str, pinned: bool, check: str, digest: str, verdict: str, written: str
) -> None:
    one = guarded(demand, pinned=pinned)
    found = build(one, "1.1.0", digest, check=check)
    assert found.verdict == verdict, found.because
    assert one.value == ("1.1.0" if written else "1.0.0")
    assert (written in one.branch.files[target("a")]) if written else found.rule == "signature"
    assert found.candidate.digest == (digest or SIGNED)


@pytest.mark.parametrize(
    ("digest", "verdict"), [(UNSIGNED, "refuse"), (SIGNED, "update"), ("", "update")]
)
def test_a_release_requires_the_same_proof_as_the_waiting_build(digest: str, verdict: str) -> None:
    one = guarded(SIGNATURES)
    one.hold("incident")
    assert build(one, "1.1.0", digest).verdict == "defer"
    assert one.release().verdict == verdict
    assert one.value == ("1.1.0" if verdict == "update" else "1.0.0")


def test_a_build_deferred_before_the_proof_was_required_is_checked_as_well() -> None:
    one = guarded("pinDigest: false")
    one.hold("incident")
    assert build(one, "1.1.0", UNSIGNED).verdict == "defer"
    one.branch.commit({PATH: f"version: 1\n{SIGNATURES}\n"})
    assert one.release().verdict == "refuse"
    assert one.value == "1.0.0"


@pytest.mark.parametrize("digest", [UNSIGNED, SIGNED])
def test_disabling_digest_pinning_does_not_remove_a_digest_that_a_proof_requires(
    digest: str,
) -> None:
    one = guarded("pinDigest: false", pin_digest="false")
    found = build(one, "1.1.0", digest, verify=True)
    assert found.candidate.digest == digest


def test_without_a_required_proof_the_events_digest_is_omitted() -> None:
    one = guarded("pinDigest: false")
    assert build(one, "1.1.0", UNSIGNED).verdict == "update"
    assert "digest" not in one.branch.files[target("a")]


PLATFORMS = ["arm", "linux", "Linux/ARM64", "linux/am64", "linux/x86_64", "linux/arm64, amd64", ","]


@pytest.mark.parametrize("check", ["auto", "never"])
@pytest.mark.parametrize("platforms", PLATFORMS)
def test_an_invalid_platform_admits_no_tag(platforms: str, check: str) -> None:
    one = story("semver", platforms=platforms)
    found = build(one, "1.1.0", "", check=check)
    assert (found.verdict, found.rule, found.exit) == ("error", "annotation", 3)
    assert found.because.startswith("platforms: ")
    assert one.value == "1.0.0"


@pytest.mark.parametrize("platforms", ["linux/arm64", "linux/arm/v7", "linux/sparc64", "a/b"])
def test_a_valid_platform_is_looked_up_in_the_registry(platforms: str) -> None:
    one = story("semver", platforms=platforms)
    one.answer = Answer(platforms=(platforms,))
    assert build(one, "1.1.0", "").verdict == "update"
    one.answer = Answer(platforms=("windows/amd64",))
    assert build(one, "1.2.0", "").rule == "platforms"


@pytest.mark.parametrize(
    ("strategy", "more", "because"),
    [
        ("alphabetical", {}, "alphabetical: every tag is admitted"),
        ("newest-build", {}, "newest-build: every tag is admitted"),
        (
            "alphabetical",
            {"tag_order": "numeric"},
            "every tag that the other annotations allow is admitted",
        ),
        (
            "newest-build",
            {"allow_tags": "regexp:^9"},
            "every tag that the other annotations allow is admitted",
        ),
        (
            "alphabetical",
            {"ignore_tags": "1.*"},
            "every tag that the other annotations allow is admitted",
        ),
    ],
)
def test_a_constraint_that_the_strategy_ignores_is_not_given_as_the_reason(
    strategy: str, more: dict[str, str], because: str
) -> None:
    one = story(strategy, image_list=f"web={WEB}:^1", **more)
    job = Job("run", (parse_image(f"{WEB}:9.9.9"),), SCOPE, Terms(now=one.now), WORDING)
    report = one.run(job)
    (found,) = report.decisions
    assert (found.verdict, found.because.endswith(because)) == ("update", True), found.because
    assert "^1" not in found.because
    told = [one for one in report.problems if one.rule == "annotation"]
    assert [(one.severity, one.key) for one in told] == [("warning", "image-list")]
    assert f"{strategy} accepts every tag and ignores '^1'" in told[0].message


@pytest.mark.parametrize("strategy", ["semver", "digest"])
def test_a_constraint_that_the_strategy_uses_is_given_as_the_reason(strategy: str) -> None:
    constraint = {"semver": "^1", "digest": "latest"}[strategy]
    one = story(strategy, image_list=f"web={WEB}:{constraint}")
    tag, digest = {"semver": ("1.1.0", ""), "digest": ("latest", SIGNED)}[strategy]
    found = build(one, tag, digest)
    assert found.because == f"{strategy} {constraint} admits it"
