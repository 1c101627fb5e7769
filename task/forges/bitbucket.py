"""What Bitbucket Cloud and Bitbucket Data Center have in common: how to log in, and which features they lack."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

from task.forges.client import ForgeToken

BARE = "x-token-auth"  # Git's user name for the token of a project, repository or workspace


# What both lack, for people.
WITHOUT = {
    "labels": "Bitbucket has no labels on pull requests",
    "assignees": "Bitbucket has no assignees on pull requests: name them as reviewers",
}


def login(token: ForgeToken) -> Mapping[str, str]:
    """Return the header that logs in: an access token alone, or a user name with a password or token."""
    if not token.secret:
        return {}
    if token.user in ("", BARE):
        return {"Authorization": f"Bearer {token.secret.reveal()}"}
    return {"Authorization": f"Basic {b64encode(f'{token.user}:{token.secret.reveal()}'.encode()).decode()}"}
