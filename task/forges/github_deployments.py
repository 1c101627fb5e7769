"""GitHub's deployments and commit statuses (docs.github.com/rest/deployments, /rest/commits/statuses)."""

from __future__ import annotations

from task.forges.client import Client, dig, numbered
from task.model import CommitStatus, Deployment
from task.plain_data import mappings
from task.text import one_line, shortened
from task.urls import path_part, web_page

NEEDS = (
    'give the token "Deployments: write" (a classic token: repo_deployment); in GitHub Actions, permissions: '
    "deployments: write"
)
STATUSES_NEED = (
    'give the token "Commit statuses: write" (a classic token: repo:status); in GitHub Actions, permissions: '
    "statuses: write"
)
TASK = "image-update"  # GitHub itself uses "deploy" for jobs with an `environment`
LONGEST = 140  # characters of a description


class GitHubDeployments:
    """The deployments of one repository."""

    def __init__(self, client: Client, statuses: Client, path: str) -> None:
        """Create two clients, because commit statuses need another permission of the token."""
        self._client, self._statuses, self._path = client, statuses, path

    def begin(self, deployment: Deployment) -> str:
        """As `DeploymentApi.begin`. Without `required_contexts` GitHub would wait for all checks of the commit."""
        body = {
            "ref": deployment.commit, "environment": deployment.environment, "task": TASK, "auto_merge": False,
            "required_contexts": [], "description": _short(deployment.description),
        }  # fmt: skip
        said = self._client.json("POST", f"{self._path}/deployments", f"show {_named(deployment)}", json=body)
        number = numbered(dig(said, "id"), self._client.reach.place.host, "a deployment")
        self.change(number, deployment)
        return number

    def find(self, deployment: Deployment) -> str:
        """As `DeploymentApi.find`; the newest comes first."""
        params = {
            "sha": deployment.commit, "environment": deployment.environment, "task": TASK, "per_page": 1,
        }  # fmt: skip
        what = f"look for {_named(deployment)}"
        found = mappings(self._client.json("GET", f"{self._path}/deployments", what, params=params))
        return dig(found, 0, "id")

    def change(self, number: str, deployment: Deployment) -> None:
        """As `DeploymentApi.change`."""
        body = {
            "state": deployment.state, "description": _short(deployment.description),
            "log_url": web_page(deployment.run), "environment_url": web_page(deployment.page),
        }  # fmt: skip
        path = f"{self._path}/deployments/{path_part(number)}/statuses"
        told = {name: value for name, value in body.items() if value}
        self._client.ask("POST", path, f"show {_named(deployment)}", json=told, again=True)

    def sum_up(self, status: CommitStatus) -> None:
        """As `DeploymentApi.sum_up`."""
        body = {
            "state": status.state, "context": status.context, "description": _short(status.description),
            "target_url": web_page(status.run),
        }  # fmt: skip
        told = {name: value for name, value in body.items() if value}
        path = f"{self._path}/statuses/{path_part(status.commit)}"
        self._statuses.ask("POST", path, "set the commit's status", json=told, again=True)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._statuses.close()


def _named(deployment: Deployment) -> str:
    return f"the deployment of {deployment.environment}"


def _short(text: str) -> str:
    return shortened(one_line(text), LONGEST - 1)
