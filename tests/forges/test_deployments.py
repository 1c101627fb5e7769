"""Deployments on forges that support them: started, ended, found by a later run, or rejected."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fakes.forge_server import ForgeServer, Reply
from support.forge_kinds import KINDS, place_on
from support.serving import serving

from task.errors import ForgeError, RepositoryError, UnreachableError
from task.forges import gitlab
from task.forges.client import ForgeToken, Reach
from task.forges.deployment import CommitStatus, Deployment
from task.forges.host import Deployments
from task.forges.places import FORGES
from task.http import Limits
from task.secret import Secret

COMMIT = "c" * 40
WEB = Deployment(
    "argocd/web", COMMIT, "in_progress", "x" * 500, "main",
    page="https://argocd.example.com/applications/argocd/web", run="https://ci.example.com/runs/7",
)  # fmt: skip
STATES = {
    "github": {
        "queued": "queued",
        "in_progress": "in_progress",
        "success": "success",
        "failure": "failure",
    },
    "gitlab": gitlab.STATES,
}


class Deployed:
    """A repository on a forge, with builds that are deployed."""

    def __init__(self, name: str, server: ForgeServer) -> None:
        self.name, self.server, self.place = name, server, place_on(KINDS[name], server)
        self.words, self.warned = STATES[name], list[str]()
        server.commits.add(COMMIT)

    def forge(self) -> Deployments:
        token, limits = ForgeToken(Secret("good-token")), Limits(tries=1, silence=5, total=10)
        kind = FORGES[self.name].deployments
        assert kind is not None
        return kind(Reach(self.place, token, limits=limits, warn=self.warned.append))


@pytest.fixture(params=[name for name, kind in FORGES.items() if kind.deployments])
def deployed(request: pytest.FixtureRequest) -> Iterator[Deployed]:
    with serving(KINDS[request.param].fake()) as server:
        yield Deployed(request.param, server)


@pytest.mark.parametrize("end", ["success", "failure"])
def test_a_deployment_begins_and_ends(deployed: Deployed, end: str) -> None:
    forge = deployed.forge()
    forge.begin(WEB)
    assert forge.end(replace(WEB, state=end), begun=True)  # type: ignore[arg-type]
    (one,) = deployed.server.deployments
    assert (one.environment, one.commit) == ("argocd/web", COMMIT)
    assert one.states == [deployed.words["in_progress"], deployed.words[end]]  # type: ignore[index]


def test_a_queued_deployment_is_not_shown_as_a_success(deployed: Deployed) -> None:
    deployed.forge().begin(replace(WEB, state="queued"))
    assert deployed.server.deployments[0].states == [
        {"github": "queued", "gitlab": "running"}[deployed.name]
    ]


def test_a_later_run_ends_an_earlier_runs_deployment(deployed: Deployed) -> None:
    deployed.forge().begin(WEB)
    deployed.server.deploy("argocd/web", "d" * 40, "success")  # a deployment of another commit
    deployed.server.deploy(
        "argocd/web", COMMIT, "running", ours=False
    )  # created by a job with an `environment`
    deployed.server.deploy("argocd/api", COMMIT, "running")
    before = [list(one.states) for one in deployed.server.deployments]
    assert deployed.forge().end(replace(WEB, state="success"), begun=False)
    states = [one.states for one in deployed.server.deployments]
    assert states == [[*before[0], "success"], *before[1:]]


def test_a_deployment_that_we_did_not_begin_is_not_ended(deployed: Deployed) -> None:
    deployed.server.deploy("argocd/web", COMMIT, "running", ours=False)
    assert not deployed.forge().end(replace(WEB, state="success"), begun=False)
    assert deployed.server.writes == []


def test_a_refusal_names_the_permission(deployed: Deployed) -> None:
    deployed.server.fail(deployed.server.refusal("forbidden"), "POST", "/deployments")
    with pytest.raises(RepositoryError) as caught:
        deployed.forge().begin(WEB)
    assert deployed.forge().needs in caught.value.hint
    assert "the changes in Git are kept" in caught.value.hint


def test_a_deployment_of_a_missing_commit_is_an_error(deployed: Deployed) -> None:
    with pytest.raises(ForgeError, match=r"report the deployment to argocd/web"):
        deployed.forge().begin(replace(WEB, commit="e" * 40))


def test_a_response_that_is_not_a_deployment_is_an_error(deployed: Deployed) -> None:
    deployed.server.fail(Reply(200, ["x"]), "POST", "/deployments")
    with pytest.raises(UnreachableError, match=r"is not a deployment"):
        deployed.forge().begin(WEB)


def test_a_github_deployment_links_to_argo_cd() -> None:
    with serving(KINDS["github"].fake()) as server:
        Deployed("github", server).forge().begin(WEB)
        assert server.deployments[0].links == [WEB.page]


def test_github_also_receives_a_commit_status() -> None:
    with serving(KINDS["github"].fake()) as server:
        forge = Deployed("github", server).forge()
        forge.sum_up(CommitStatus(COMMIT, "image-update/web", "success", "y" * 200, WEB.run))
        assert server.statuses == [(COMMIT, "image-update/web", "success")]
        server.fail(server.refusal("forbidden"), "POST", COMMIT)
        with pytest.raises(RepositoryError) as caught:
            forge.sum_up(CommitStatus(COMMIT, "image-update/web", "success", "", "not a page"))
        assert "statuses: write" in caught.value.hint


def test_a_link_is_added_once_to_a_gitlab_environment_without_one() -> None:
    with serving(KINDS["gitlab"].fake()) as server:
        deployed = Deployed("gitlab", server)
        for _again in range(2):
            deployed.forge().begin(WEB)
        assert [one for one in server.writes if "/environments/" in one] == [
            "PUT /api/v4/projects/acme/team/deploy/environments/500"
        ]
        assert server.links == {500: WEB.page}  # type: ignore[attr-defined]


def test_a_gitlab_deployment_is_reported_even_if_its_link_is_rejected() -> None:
    with serving(KINDS["gitlab"].fake()) as server:
        deployed = Deployed("gitlab", server)
        server.fail(server.refusal("forbidden"), "PUT", "/environments/500")
        deployed.forge().begin(WEB)
        assert [one.states for one in server.deployments] == [["running"]]
        (warning,) = deployed.warned
        assert "link argocd/web to Argo CD" in warning
