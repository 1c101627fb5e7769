"""Renamed repositories on Azure and Bitbucket: redirects are followed, and a warning is logged."""

from dataclasses import replace

import pytest
from fakes import bitbucket_cloud_api
from fakes.bitbucket_data_center_api import KEY, SLUG
from fakes.forge_server import Reply, Request
from support.forge_kinds import KINDS, place_on
from support.forge_plays import World
from support.serving import serving

from task.forges.places import FORGES

AZURE = "https://dev.azure.com/acme/Web%20Shop/_git/deploy"
CLOUD = f"https://bitbucket.org/{bitbucket_cloud_api.WORKSPACE}/{bitbucket_cloud_api.SLUG}"
CENTER = f"https://git.example.com/projects/{KEY}/repos/{SLUG}/browse"
ROWS = [
    ("azure", "repositories", {"webUrl": AZURE}, AZURE),
    ("bitbucket", "repositories/acme", {"links": {"html": {"href": CLOUD}}}, CLOUD),
    ("bitbucket-server", "repos", {"links": {"self": [{"href": CENTER}]}}, CENTER),
]


@pytest.mark.parametrize(("name", "folder", "repository", "page"), ROWS)
def test_a_renamed_repository_is_followed(
    name: str, folder: str, repository: dict[str, object], page: str
) -> None:
    kind = KINDS[name]
    with serving(kind.fake()) as server:
        place = place_on(kind, server)
        present = place.project[-1]
        answered = server.answer

        def moved(request: Request) -> Reply:
            path = request.target.partition("?")[0]
            if f"/{folder}/old" in path:
                there = request.target.replace(f"/{folder}/old", f"/{folder}/{present}", 1)
                status = 301 if request.method == "GET" else 307
                return Reply(status, None, (("Location", f"{server.url}{there}"),))
            if path.endswith(f"/{folder}/{present}"):
                return Reply(200, repository)
            return answered(request)

        server.answer = moved  # type: ignore[method-assign]
        old = replace(place, project=(*place.project[:-1], "old"))
        world = World(server, old, FORGES[name].client)
        first, second = world.propose(world.push("1.1")), world.propose(world.push("1.2"))
        assert (first.number, second.number, len(server.pulls)) == ("1", "1", 1)
        asked = [one.target.partition("?")[0] for one in server.seen]
        assert [path for path in asked if path.rstrip("/") == kind.fake.api] == []
        assert world.warned[0].startswith(f"{old.web} has moved to {page}: ")
