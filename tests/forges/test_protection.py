"""Whether others may push to our branches, per documented Git host responses and in `lint`."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fakes.description import FOLDER
from fakes.forge_server import Reply
from fakes.gitea_api import Gitea as Server
from support import ROOT, git, image_update
from support.forge_kinds import KINDS, place_on
from support.forge_plays import World
from support.runs import application, manifest
from support.serving import serving

from task.errors import TaskError
from task.forges.places import FORGES
from task.forges.protection import (
    azure_token,
    open_on_bitbucket_cloud,
    open_on_data_center,
    open_on_gitea,
    open_on_github,
    open_on_gitlab,
)

STATES = json.loads((FOLDER / "protections.json").read_text())["states"]
NAME = "image-update/lint"


@pytest.mark.parametrize("state", STATES, ids=lambda state: f"{state['forge']}: {state['state']}")
def test_each_host_response_shows_whether_others_may_push(state: Mapping[str, Any]) -> None:
    kind = KINDS[state["forge"]]
    with serving(kind.fake()) as server:
        for method, end, status, body in state["answers"]:
            server.fail(Reply(status, body), method, end)
        world = World(server, place_on(kind, server), FORGES[kind.name].client)
        if state["open"] is None:
            with pytest.raises(TaskError):
                world.forge().open_to_others(NAME)
        else:
            assert world.forge().open_to_others(NAME) is state["open"]
        assert [fault for fault in server.faults if fault.times] == []
        assert server.writes in ([], ["POST /api/graphql"])


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@pytest.mark.parametrize("body", [{"values": None}, {"value": {}}, "x", 7, {"message": "moved"}])
def test_a_response_of_an_unexpected_shape_is_an_error(kind: Any, body: Any) -> None:
    with serving(kind.fake()) as server:
        server.fail(Reply(200, body), "GET", times=9)
        world = World(server, place_on(kind, server), FORGES[kind.name].client)
        with pytest.raises(TaskError):
            world.forge().open_to_others(NAME)


def test_the_azure_security_token_for_a_branch_is_encoded() -> None:
    """The example for `master` was taken from learn.microsoft.com."""
    project, repository = (
        "212d1460-2143-4296-9771-c54336dbf3d3",
        "393d8e86-ed2b-473f-8480-0cf728c1f866",
    )
    assert azure_token(project, repository, "master") == (
        f"repoV2/{project}/{repository}/refs/heads/6d0061007300740065007200/"
    )


@pytest.mark.parametrize(
    ("asked", "rules", "told"),
    [
        ({"pull_request": "true"}, [], True),
        ({"git_branch": "main:staging"}, [], True),
        ({"git_branch": "main"}, [], False),
        ({"pull_request": "true"}, None, False),
        (
            {"pull_request": "true"},
            [
                {
                    "rule_name": "image-update*/**",
                    "enable_push": True,
                    "enable_push_whitelist": True,
                }
            ],
            False,
        ),
    ],
)
def test_lint_warns_about_unprotected_branches(
    asked: dict[str, str], rules: list[dict[str, Any]] | None, told: bool, tmp_path: Path
) -> None:
    with serving(Server()) as server:
        denied = Reply(403, {"message": "user should be an owner"})
        answer = denied if rules is None else Reply(200, rules)
        server.fail(answer, "GET", "/branch_protections", times=9)
        repo = f"{server.url}/acme/deploy.git"
        apps = manifest(tmp_path, application("web", repo, **asked))
        for token in ("good-token", ""):
            server.seen.clear()
            env = {"IMAGE_UPDATE_FORGE_TOKEN": token}
            forge = ("--forge", f"gitea={server.url}")
            ended = image_update("lint", apps, "--output", "json", *forge, env=env)
            found = [
                one for one in ended.json["findings"] if "others can push to" in one["message"]
            ]
            assert bool(found) is (told and token != "")
            assert (server.seen == []) is (token == "" or asked == {"git_branch": "main"})
            for one in found:
                assert one["severity"] == "warning"
                assert "image-update/** and image-update-memory/**" in one["message"]
                assert "protect-the-branches" in one["hint"]


def test_lint_checks_the_branch_prefix_from_the_config(tmp_path: Path) -> None:
    with serving(Server()) as server:
        server.fail(Reply(200, []), "GET", "/branch_protections", times=9)
        repo = f"{server.url}/acme/deploy.git"
        apps = manifest(tmp_path, application("web", repo, pull_request="true"))
        (tmp_path / ".image-update").mkdir()
        (tmp_path / ".image-update/config").write_text("version: 1\nbranchPrefix: bots/iu\n")
        git(tmp_path, "init", "--quiet", "--initial-branch=main")
        git(tmp_path, "remote", "add", "origin", repo)
        git(tmp_path, "add", "--all")
        git(tmp_path, "commit", "--quiet", "--message=Start")
        env = {"IMAGE_UPDATE_FORGE_TOKEN": "good-token"}
        forge = ("--forge", f"gitea={server.url}")
        ended = image_update("lint", apps, "--output", "json", *forge, env=env)
        (found,) = [one for one in ended.json["findings"] if "others can push to" in one["message"]]
        assert "bots/iu/** and bots/iu-memory/**" in found["message"]
        assert "push to bots/iu*/**: " in found["hint"]


GUIDE = (ROOT / "docs/how-to/protect-the-branches.md").read_text()
PATTERN = "image-update*/**"


def bodies() -> list[Any]:
    return [
        json.loads(text)
        for text in re.findall(r"^```json\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    ]


def test_the_rules_from_the_guide_protect_our_branches() -> None:
    """The fake host responses are built from the requests in the guide."""
    github, gitlab, gitea, cloud, center = bodies()
    assert github["conditions"]["ref_name"]["include"] == [f"refs/heads/{PATTERN}"]
    assert not open_on_github(github["rules"])
    levels = [{"access_level": gitlab["push_access_level"]}]
    for name in (NAME, "image-update-memory/0123abcd"):
        assert not open_on_gitlab([gitlab | {"push_access_levels": levels}], name)
        assert not open_on_gitea([gitea], name)
        assert not open_on_bitbucket_cloud([cloud], name)
        assert not open_on_data_center([center], name)
    assert gitlab["allow_force_push"] is gitea["enable_force_push"] is True
    assert (gitlab["name"], gitea["rule_name"], cloud["pattern"]) == (PATTERN, PATTERN, PATTERN)
    for folder in ("image-update", "image-update-memory"):
        assert folder.encode("utf-16-le").hex() in GUIDE


@pytest.mark.parametrize("name", ["main", "image-updates", "feature/image-update/x"])
def test_the_rules_from_the_guide_protect_no_other_branches(name: str) -> None:
    github, gitlab, gitea, cloud, center = bodies()
    assert github["target"] == "branch"
    assert open_on_gitlab([gitlab], name)
    assert open_on_gitea([gitea], name)
    assert open_on_bitbucket_cloud([cloud], name)
    assert open_on_data_center([center], name)
