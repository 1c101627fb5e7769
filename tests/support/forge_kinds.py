"""A table of the fake forges. A new forge needs an entry here."""

from collections.abc import Mapping
from typing import NamedTuple

from fakes import (
    azure_api,
    bitbucket_cloud_api,
    bitbucket_data_center_api,
    gitea_api,
    github_api,
    gitlab_api,
)
from fakes.forge_server import ForgeServer

from task.forges.client import ForgeAddress

AZURE = f"{azure_api.ORGANIZATION}/{azure_api.PROJECT}/_git/{azure_api.REPOSITORY}".replace(
    " ", "%20"
)
DATA_CENTER = f"scm/{bitbucket_data_center_api.KEY}/{bitbucket_data_center_api.SLUG}.git"


class Kind(NamedTuple):
    """A kind of forge: its fake, its name in `--forge`, the path of a repository, and the parts of
    the repository's project.
    """

    fake: type[ForgeServer]
    name: str
    path: str
    project: tuple[str, ...]


KINDS: Mapping[str, Kind] = {
    one.name: one
    for one in (
        Kind(github_api.GitHub, "github", f"{github_api.NAME}.git", (github_api.OWNER, github_api.REPO)),
        Kind(gitlab_api.GitLab, "gitlab", f"{gitlab_api.PROJECT}.git", tuple(gitlab_api.PROJECT.split("/"))),
        Kind(
            gitea_api.Gitea, "gitea", f"{gitea_api.OWNER}/{gitea_api.REPO}.git", (gitea_api.OWNER, gitea_api.REPO)
        ),
        Kind(
            bitbucket_data_center_api.BitbucketDataCenter, "bitbucket-server", DATA_CENTER,
            (bitbucket_data_center_api.KEY, bitbucket_data_center_api.SLUG),
        ),
        Kind(
            bitbucket_cloud_api.BitbucketCloud, "bitbucket",
            f"{bitbucket_cloud_api.WORKSPACE}/{bitbucket_cloud_api.SLUG}.git",
            (bitbucket_cloud_api.WORKSPACE, bitbucket_cloud_api.SLUG),
        ),
        Kind(
            azure_api.AzureDevOps, "azure", AZURE,
            (azure_api.ORGANIZATION, azure_api.PROJECT, azure_api.REPOSITORY),
        ),
    )
}  # fmt: skip


def place_on(kind: Kind, server: ForgeServer) -> ForgeAddress:
    """Return the address of the fake's repository, in the form that our client receives."""
    return ForgeAddress(
        kind.name, "git.example.com", f"{server.url}{kind.fake.api}", kind.project, server.url
    )
