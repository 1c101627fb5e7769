"""What a Git host shows about an Application: its deployments, and a commit's status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DeploymentState = Literal["queued", "in_progress", "success", "failure"]


@dataclass(frozen=True)
class Deployment:
    """A build in an environment, as shown by a forge."""

    environment: str
    commit: str  # the build's source commit
    state: DeploymentState
    description: str
    ref: str = ""  # the branch or tag that was built; "" if unknown
    is_tag: bool = False
    page: str = ""  # the environment's web page
    run: str = ""  # the pipeline's web page


@dataclass(frozen=True)
class CommitStatus:
    """A status that a forge shows next to a commit."""

    commit: str
    context: str  # distinguishes this status from others
    state: Literal["pending", "success", "failure"]
    description: str
    run: str = ""  # the pipeline's web page
