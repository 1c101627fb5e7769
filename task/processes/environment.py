"""Makes the environment of the programs that we start: git and its children, and programs that people configure.

An allow-list would break credential helpers and exec plugins, because these read their own variables from the
environment (AWS_*, AZURE_*, GOOGLE_*). So these are removed: all variables that are meant for us, and the secrets of CI
systems and Git hosts, which are recognised by their names. A variable that only its user has named stays.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_OURS = ("IMAGE_UPDATE_", "INPUT_")  # our options and secrets; the inputs of a GitHub action
_SECRET = re.compile(
    r"(?:ACTIONS|APPVEYOR|ARGO|ARGOCD|AZURE_DEVOPS|BITBUCKET|BITRISE|BUDDY|BUILDKITE|CI|CIRCLE|CIRRUS|CODEBERG|CODEBUILD"
    r"|DRONE|ENDPOINT|FORGEJO|GH|GITEA|GITHUB|GITLAB|GL|HARNESS|JENKINS|PLUGIN|SEMAPHORE|SYSTEM|TEAMCITY|TRAVIS|VSS|VSTS"
    r"|WOODPECKER)_"
    r".*(?:TOKEN|PASSWORD|PASSWD|SECRET|JWT|NETRC|CREDENTIAL|PRIVATE_KEY|API_KEY|AUTH(?!OR)|(?<=_)PAT(?![A-Z]))"
    r"|ARGOCD_OPTS|DOCKER_AUTH_CONFIG|REPOSITORY_OAUTH_ACCESS_TOKEN"
    r"|CI_REPOSITORY_URL|CI_BUILD_REPO"  # the job's token is in these URLs
)
_GITHUB = ("GITHUB_TOKEN", "GH_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_ENTERPRISE_TOKEN")
_GITLAB = ("GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN", "CI_JOB_TOKEN")
_AZURE = ("SYSTEM_ACCESSTOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL")
# Programs that need one of these tokens to log in.
_KNOWN = (
    (re.compile(r"\b(?:gh|ghcr)\b"), _GITHUB),  # `!gh auth git-credential`, docker-credential-ghcr-login
    (re.compile(r"\bglab\b"), _GITLAB),  # `!glab auth git-credential`, `glab cluster agent get-token`
    (re.compile(r"\bkubelogin\b"), _AZURE),  # `kubelogin get-token --login azurepipelines`
)
_NAMED = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")


def child_environment(environ: Mapping[str, str], configured: Collection[str] = ()) -> dict[str, str]:
    """Return the environment without the tokens that a program does not need.

    `configured` are the texts with which somebody configured the program. A token that they name (`$GITHUB_TOKEN`)
    stays.
    """
    needed = needs(configured)
    return {name: value for name, value in environ.items() if name in needed or not is_secret(name)}


def is_secret(name: str) -> bool:
    """Tell whether a variable is meant for us, or has by its name a secret of a CI system or of a Git host."""
    return name.startswith(_OURS) or bool(_SECRET.match(name))


def needs(configured: Collection[str]) -> frozenset[str]:
    """Return the variables that a program needs, according to the texts of its configuration.

    Ours are never among them.
    """
    named = {name for text in configured for name in _NAMED.findall(text)}
    known = {name for words, names in _KNOWN if any(words.search(text) for text in configured) for name in names}
    return frozenset(name for name in named | known if not name.startswith(_OURS))
