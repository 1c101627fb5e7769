"""What controls an Application: owners that revert changes, rolling sync steps, signature keys."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from support.recorded import exchange

from task.argocd.owners import (
    LAST_APPLIED,
    accepted,
    keys_wanted,
    parent_of,
    parent_takes_back,
    set_of,
    set_takes_back,
    step_of,
)

FIELD = "spec.source.helm.parameters"
CHILD = {"metadata": {"name": "web", "namespace": "argocd"}}


def test_a_real_application_names_its_owner() -> None:
    """The fields are as Argo CD 3.6 writes them."""
    of_set, of_parent = (
        exchange("argocd-3.6", name).body
        for name in ("application-set-child", "application-of-parent")
    )
    assert (set_of(of_set), set_of(of_parent)) == ("gen", "")
    assert (parent_of(of_set, "argocd"), parent_of(of_parent, "argocd")) == (
        None,
        ("argocd", "parent"),
    )
    assert not parent_takes_back(HEALS, of_parent, FIELD)  # its manifest in Git lacks this field


SETS: list[tuple[dict[str, Any], bool]] = [
    ({"generators": []}, True),
    ({"syncPolicy": {"applicationsSync": "create-only"}}, False),
    ({"syncPolicy": {"applicationsSync": "create-delete"}}, False),
    ({"syncPolicy": {"applicationsSync": "create-update"}}, True),
    ({"ignoreApplicationDifferences": [{"jsonPointers": ["/spec/source/helm/parameters"]}]}, False),
    ({"ignoreApplicationDifferences": [{"jsonPointers": ["/spec/source"]}]}, False),
    (
        {
            "ignoreApplicationDifferences": [
                {"jsonPointers": ["/spec/source/helm/parameters/0/value"]}
            ]
        },
        False,
    ),
    (
        {
            "ignoreApplicationDifferences": [
                {"jsonPointers": ["/spec/source/helm/param", "/spec/syncPolicy", 1]}
            ]
        },
        True,
    ),
    ({"ignoreApplicationDifferences": [{"name": "web", "jsonPointers": ["/spec/source"]}]}, False),
    ({"ignoreApplicationDifferences": [{"name": "api", "jsonPointers": ["/spec/source"]}]}, True),
    (
        {
            "ignoreApplicationDifferences": [
                {"jqPathExpressions": [".spec.source.helm.parameters[]"]}
            ]
        },
        False,
    ),
    ({"ignoreApplicationDifferences": [{"jqPathExpressions": [".spec.syncPolicy"]}, "x"]}, True),
    ({"ignoreApplicationDifferences": [{"jsonPointers": 1, "jqPathExpressions": True}]}, True),
    ({}, False),  # the owner could not be read
]


@pytest.mark.parametrize(("spec", "expected"), SETS)
def test_an_application_set_reverts_fields_that_it_does_not_ignore(
    spec: dict[str, Any], expected: bool
) -> None:
    assert set_takes_back({"spec": spec}, "web", FIELD) is expected


AUTOMATED = {"syncPolicy": {"automated": {"selfHeal": True}}}
HEALS = {"spec": AUTOMATED}
RULE = {"group": "argoproj.io", "kind": "Application", "jsonPointers": ["/spec/source/helm"]}
PARENTS: list[tuple[dict[str, Any], bool]] = [
    (AUTOMATED, True),
    ({"syncPolicy": {"automated": {}}}, False),
    ({"syncPolicy": {"automated": {"selfHeal": True, "enabled": False}}}, False),
    ({**AUTOMATED, "ignoreDifferences": [RULE]}, False),
    ({**AUTOMATED, "ignoreDifferences": [{**RULE, "name": "web", "namespace": "argocd"}]}, False),
    ({**AUTOMATED, "ignoreDifferences": [{**RULE, "name": "api"}]}, True),
    ({**AUTOMATED, "ignoreDifferences": [{**RULE, "group": "apps", "kind": "Deployment"}]}, True),
    ({**AUTOMATED, "ignoreDifferences": [{**RULE, "group": "*", "kind": "*"}]}, False),
]


@pytest.mark.parametrize(("spec", "expected"), PARENTS)
def test_a_self_healing_parent_reverts_fields_that_it_does_not_ignore(
    spec: dict[str, Any], expected: bool
) -> None:
    assert parent_takes_back({"spec": spec}, CHILD, FIELD) is expected


@pytest.mark.parametrize(
    ("applied", "expected"),
    [
        ({"spec": {"source": {"helm": {"parameters": []}}}}, True),
        ({"spec": {"source": {"helm": {}}}}, False),
        ({"spec": {"source": "x"}}, False),
        ([], False),
    ],
)
def test_a_parent_reverts_only_fields_in_its_git_manifest(applied: Any, expected: bool) -> None:
    metadata = {**CHILD["metadata"], "annotations": {LAST_APPLIED: json.dumps(applied)}}
    assert parent_takes_back(HEALS, {"metadata": metadata}, FIELD) is expected


ROLLS = {"strategy": {"type": "RollingSync"}}
STATES = [
    {"application": "api", "step": "1"},
    {"application": "web", "step": "2", "status": "Waiting", "message": "no"},
]
WAITS = "it is waiting for its step in the RollingSync of ApplicationSet gen: "


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (
            {"spec": ROLLS, "status": {"applicationStatus": STATES}},
            f"{WAITS}step 2, status Waiting, no",
        ),
        ({"spec": ROLLS, "status": {"applicationStatus": STATES[:1]}}, f"{WAITS}not known"),
        ({"spec": ROLLS}, f"{WAITS}not known"),
        ({"spec": {"strategy": {"type": "AllAtOnce"}}}, ""),
        ({}, ""),
    ],
)
def test_the_step_of_a_rolling_sync_is_described(owner: Mapping[str, Any], expected: str) -> None:
    owners = [{"kind": "ApplicationSet", "name": "gen"}]
    assert (
        step_of(owner, {"metadata": {**CHILD["metadata"], "ownerReferences": owners}}) == expected
    )


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
    (integrity(policy(["*"], "strict")), (KEY,)),  # the format in early Argo CD documentation
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
def test_a_projects_signature_keys_are_read(
    spec: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert keys_wanted({"spec": spec}, REPO) == expected
    assert keys_wanted({"spec": None}, REPO) == ()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ((KEY,), True),
        ((f"AAAA{KEY.lower()}",), True),
        ((OTHER, KEY), True),
        (("BBBB",), False),
        ((), False),
    ],
)
def test_a_key_is_accepted_as_an_id_or_a_fingerprint(keys: tuple[str, ...], expected: bool) -> None:
    assert accepted((KEY,), keys) is expected
