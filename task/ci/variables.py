"""Reads the variables of CI systems: the source commit, its repository, and a link to the run. Pure.

The names come from the systems' own references.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Origin(NamedTuple):
    """Where an image comes from, and which run deploys it. Unknown parts are ""."""

    commit: str = ""
    repository: str = ""
    run: str = ""
    author: str = ""  # Name <address>
    date: str = ""  # RFC 3339
    message: str = ""


SYSTEMS = (
    Origin(  # GitHub, Gitea and Forgejo Actions
        "{GITHUB_SHA}",
        "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}",
        "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}",
    ),
    Origin(  # GitLab; Woodpecker below has some of its names
        "{CI_COMMIT_SHA}",
        "{CI_PROJECT_URL}",
        "{CI_PIPELINE_URL}",
        "{CI_COMMIT_AUTHOR}",
        "{CI_COMMIT_TIMESTAMP}",
        "{CI_COMMIT_MESSAGE}",
    ),
    Origin("{CI_COMMIT_SHA}", "{CI_REPO_URL}", "{CI_PIPELINE_URL}", message="{CI_COMMIT_MESSAGE}"),  # Woodpecker
    Origin("{GIT_COMMIT}", "{GIT_URL}", "{BUILD_URL}"),  # Jenkins
    Origin(
        "{BITBUCKET_COMMIT}",
        "{BITBUCKET_GIT_HTTP_ORIGIN}",
        "{BITBUCKET_GIT_HTTP_ORIGIN}/pipelines/results/{BITBUCKET_BUILD_NUMBER}",
    ),
    Origin(  # Azure Pipelines
        "{BUILD_SOURCEVERSION}",
        "{BUILD_REPOSITORY_URI}",
        "{SYSTEM_COLLECTIONURI}{SYSTEM_TEAMPROJECT}/_build/results?buildId={BUILD_BUILDID}",
    ),
    Origin("{CIRCLE_SHA1}", "{CIRCLE_REPOSITORY_URL}", "{CIRCLE_BUILD_URL}"),
    Origin("{BUILDKITE_COMMIT}", "{BUILDKITE_REPO}", "{BUILDKITE_BUILD_URL}", message="{BUILDKITE_MESSAGE}"),
    Origin("{DRONE_COMMIT_SHA}", "{DRONE_REPO_LINK}", "{DRONE_BUILD_LINK}", message="{DRONE_COMMIT_MESSAGE}"),
)


def origin_of(environ: Mapping[str, str]) -> Origin:
    """Return the origin from the system that knows most: the commit, else the repository, else the run."""
    known = {name: text.strip() for name, text in environ.items() if text.strip()}
    # Several systems may seem to be present: Gitea's runner sets GitHub's names, and people set some by hand.
    origins = [Origin(*(filled(text, known) for text in system)) for system in SYSTEMS]
    return max(origins, key=lambda origin: (bool(origin.commit), bool(origin.repository), bool(origin.run)))


def filled(template: str, known: Mapping[str, str]) -> str:
    """Return the template with its variables filled in, or "" unless all of them are known."""
    try:
        return template.format_map(known)
    except KeyError:
        return ""
