"""Which keys an AppProject wants for the commits of a repository, as Argo CD 2 to 3.5 read it."""

from typing import Any

import pytest

from task.argocd.signed_revisions import accepted, keys_wanted

REPO = "https://git.example.com/acme/gitops.git"
KEY, OTHER = "D56C4FCA57A46444", "4AEE18F83AFDEB23"


def policy(repos: list[Any], mode: str = "head", *keys: str) -> dict[str, Any]:
    return {"repos": repos, "gpg": {"mode": mode, "keys": list(keys or (KEY,))}}


def integrity(*policies: Any) -> dict[str, Any]:
    return {"sourceIntegrity": {"git": {"policies": list(policies)}}}


ANY = {"url": "*"}
PROJECTS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"signatureKeys": [{"keyID": KEY}, {"keyID": OTHER}]}, (KEY, OTHER)),
    ({"signatureKeys": []}, ()),
    ({"signatureKeys": "x"}, ()),
    ({}, ()),
    (integrity(policy([ANY])), (KEY,)),
    (integrity(policy(["*"], "strict")), (KEY,)),  # as the first documents had it
    (integrity(policy([ANY], "none")), ()),
    (integrity(policy([{"url": "https://git.example.com/*"}], "strict", OTHER)), (OTHER,)),
    (integrity(policy([{"url": "https://other.example.com/*"}])), ()),
    (integrity(policy([ANY, {"url": "!https://git.example.com/acme/*"}])), ()),
    (integrity(policy([{"url": REPO}], "none"), policy([ANY])), ()),
    ({**integrity(policy([ANY], "none")), "signatureKeys": [{"keyID": KEY}]}, ()),
    (integrity({"repos": "x"}, 1, {"repos": [ANY], "gpg": "x"}), ()),
    ({"sourceIntegrity": "x"}, ()),
]


@pytest.mark.parametrize(("spec", "expected"), PROJECTS)
def test_the_keys_that_a_project_wants(spec: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert keys_wanted({"spec": spec}, REPO) == expected
    assert keys_wanted({"spec": None}, REPO) == ()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [((KEY,), True), ((f"AAAA{KEY.lower()}",), True), ((OTHER, KEY), True), (("BBBB",), False), ((), False)],
)
def test_an_id_or_a_fingerprint_is_enough(keys: tuple[str, ...], expected: bool) -> None:
    assert accepted((KEY,), keys) is expected
