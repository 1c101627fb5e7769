"""Deployments as forges show them: which build is in which environment, and how its rollout ended."""

from __future__ import annotations

from typing import Protocol

from task.model import CommitStatus, Deployment

STAYS = "what was written to Git stays, and Argo CD deploys it"


class DeploymentApi(Protocol):
    """The deployments of one repository."""

    def begin(self, deployment: Deployment) -> str:
        """A new deployment, in this state; its number."""

    def find(self, deployment: Deployment) -> str:
        """The number of our newest one of the same commit and environment that may still change; "" without any."""

    def change(self, number: str, deployment: Deployment) -> None:
        """The deployment is in this state now."""

    def sum_up(self, status: CommitStatus) -> None:
        """The commit has this status; nothing where the forge has none beside deployments."""

    def close(self) -> None:
        """Connections are closed."""
