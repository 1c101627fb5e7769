"""GitLab's environments and deployments (docs.gitlab.com/api/deployments, /api/environments)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from task.errors import ForgeError, RepositoryError
from task.forges.client import Client, dig, numbered
from task.model import CommitStatus, Deployment, DeploymentState
from task.plain_data import mappings
from task.urls import path_part, web_page

NEEDS = (
    "give a personal, project or group access token with scope api and role Developer "
    "(for a protected environment, one that may deploy to it)"
)
# GitLab has no state for a deployment that waits for Argo CD, so it counts as running
STATES: Mapping[DeploymentState, str] = {
    "queued": "running",
    "in_progress": "running",
    "success": "success",
    "failure": "failed",
}
_OPEN = ("created", "running", "blocked")
_PAGE = 20


class GitLabDeployments:
    """The deployments of one project."""

    def __init__(self, client: Client, path: str) -> None:
        self._client, self._path = client, path

    def begin(self, deployment: Deployment) -> str:
        """As `DeploymentApi.begin`. GitLab creates the environment if there is none with that name."""
        body = {
            "environment": deployment.environment, "sha": deployment.commit, "status": STATES[deployment.state],
            "ref": deployment.ref or deployment.commit, "tag": deployment.is_tag,
        }  # fmt: skip
        said = self._client.json("POST", f"{self._path}/deployments", f"show {_named(deployment)}", json=body)
        self._link(said, deployment)
        return numbered(dig(said, "id"), self._client.reach.place.host, "a deployment")

    def find(self, deployment: Deployment) -> str:
        """As `DeploymentApi.find`. A deployment that a job created belongs to that job."""
        params = {"environment": deployment.environment, "order_by": "id", "sort": "desc", "per_page": _PAGE}
        what = f"look for {_named(deployment)}"
        for one in mappings(self._client.json("GET", f"{self._path}/deployments", what, params=params)):
            if dig(one, "sha") == deployment.commit and not one.get("deployable") and dig(one, "status") in _OPEN:
                return dig(one, "id")
        return ""

    def change(self, number: str, deployment: Deployment) -> None:
        """As `DeploymentApi.change`."""
        path, body = f"{self._path}/deployments/{path_part(number)}", {"status": STATES[deployment.state]}
        self._client.ask("PUT", path, f"show {_named(deployment)}", json=body, again=True)

    def sum_up(self, status: CommitStatus) -> None:
        """Do nothing, because GitLab would show a commit's status as a job of the pipeline."""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _link(self, said: Any, deployment: Deployment) -> None:
        """Let the environment's link lead to Argo CD, unless a person has set another one."""
        number, page = dig(said, "environment", "id"), web_page(deployment.page)
        if not number or not page or dig(said, "environment", "external_url"):
            return
        path, what = f"{self._path}/environments/{path_part(number)}", f"link {deployment.environment} to Argo CD"
        try:
            self._client.ask("PUT", path, what, json={"external_url": page}, again=True)
        except (ForgeError, RepositoryError) as error:
            self._client.reach.warn(f"{error.message}; {error.hint}")


def _named(deployment: Deployment) -> str:
    return f"the deployment of {deployment.environment}"
