"""Requests are validated against the forges' own API descriptions.

In all forge tests, `fakes.forge_server` checks the requests of our clients. These tests cover the
check itself and the creation of the files.
"""

from typing import Any

import pytest
from fakes.description import described
from support.forge_kinds import KINDS, Kind

from scripts.forge_descriptions.typescript import Declarations, closed

PULLS = "/repos/acme/deploy/pulls"
CENTER = "/projects/OPS/repos/deploy/pull-requests"
PULL = {"title": "t", "body": "b", "head": "h", "base": "main"}
WRONG: list[tuple[str, str, str, dict[str, list[str]], Any, str]] = [
    ("github", "GET", PULLS, {"stat": ["all"]}, None, "knows no parameter stat"),
    ("github", "GET", PULLS, {"state": ["opened"]}, None, "state='opened'"),
    ("github", "POST", PULLS, {}, PULL | {"titel": "t"}, "'titel' was unexpected"),
    ("github", "PUT", PULLS, {}, {}, "is not described"),
    ("gitea", "GET", PULLS, {"head": ["h"]}, None, "knows no parameter head"),
    ("gitea", "POST", PULLS, {}, PULL | {"labels": ["deploy"]}, "is not of type 'integer'"),
    ("gitea", "GET", f"{PULLS}/1/review", {}, None, ""),  # a base named "1", and a head
    ("gitea", "DELETE", f"{PULLS}/1", {}, None, "is not described"),
    (
        "gitlab",
        "PUT",
        "/projects/acme%2Fdeploy/merge_requests/1",
        {},
        {"reviewers": [1]},
        "'reviewers' was unexpected",
    ),
    (
        "gitlab",
        "PUT",
        "/projects/acme%2Fdeploy/merge_requests/1",
        {},
        {"reviewer_ids": ["1"]},
        "not of type 'integer'",
    ),
    ("gitlab", "GET", "/projects/acme/deploy/merge_requests", {}, None, "is not described"),
    (
        "bitbucket",
        "GET",
        "/repositories/acme/deploy/pullrequests",
        {"limit": ["1"]},
        None,
        "no parameter limit",
    ),
    (
        "bitbucket-server",
        "GET",
        CENTER,
        {"direction": ["OUT"]},
        None,
        "",
    ),  # the description allows any string
    ("bitbucket-server", "POST", CENTER, {}, {"fromRef": {"ref": "x"}}, "'ref' was unexpected"),
    (
        "azure",
        "GET",
        "/Web%20Shop/_apis/git/repositories/deploy/pullrequests",
        {"top": ["1"]},
        None,
        "parameter top",
    ),
    (
        "azure",
        "POST",
        "/Web%20Shop/_apis/git/repositories/deploy/pullrequests",
        {},
        {"draft": True},
        "'draft' was",
    ),
]


@pytest.mark.parametrize(("forge", "method", "path", "query", "body", "said"), WRONG)
def test_requests_that_the_api_description_forbids_are_reported(
    forge: str, method: str, path: str, query: dict[str, list[str]], body: Any, said: str
) -> None:
    problems = described(forge).problems(method, path, query, body)
    assert len(problems) == (1 if said else 0)
    assert said in "".join(problems)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_every_fake_forge_has_an_api_description(kind: Kind) -> None:
    assert described(kind.fake.forge).operations


DECLARED = """
export interface components {
    schemas: {
        readonly Pull: {
            /** @example 7 */
            readonly id?: number;
            readonly title: string;
            readonly ends?: readonly components["schemas"]["End"][];
        } & (Omit<components["schemas"]["Base"], "type"> & Readonly<Record<string, unknown>>);
        readonly End: {
            readonly state?: "OPEN" | "MERGED";
            readonly links?: Record<string, unknown>;
        };
        readonly Base: {
            readonly type: string;
            readonly [key: string]: unknown;
        };
    };
}
"""


def test_typescript_declarations_become_json_schemas() -> None:
    declared = Declarations(DECLARED)
    end = {"type": "object", "properties": {"state": {"enum": ["OPEN", "MERGED"]}, "links": {}}}
    assert closed({"$ref": "Pull"}, lambda name: declared.member("components", name)) == {
        "type": "object",
        "properties": {
            "id": {"type": "number"},
            "title": {"type": "string"},
            "ends": {"type": "array", "items": end},
            "type": {"type": "string"},
        },
    }
