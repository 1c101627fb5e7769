"""Deployments on forges: which build is in which environment, and how its rollout ended."""

from __future__ import annotations

from typing import Protocol

from task.model import CommitStatus, Deployment

STAYS = "what was written to Git stays, and Argo CD deploys it"


class DeploymentApi(Protocol):
    """The deployments of one repository."""

    def begin(self, deployment: Deployment) -> str:
        """Create a deployment in this state, and return its number."""

    def find(self, deployment: Deployment) -> str:
        """Return the number of our newest deployment for this commit and environment that may still change, or ""."""

    def change(self, number: str, deployment: Deployment) -> None:
        """Set the state of the deployment."""

    def sum_up(self, status: CommitStatus) -> None:
        """Set the status of the commit. Do nothing if the forge has no such status."""

    def close(self) -> None:
        """Close the connections."""
