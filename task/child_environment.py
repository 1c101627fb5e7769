"""Makes the environment of the programs that we start: git and its children, and programs that people configure.

An allow-list would break credential helpers and exec plugins, because these read their own variables from the
environment (AWS_*, AZURE_*, GOOGLE_*). So only known tokens are removed: all variables that are meant for us, and the
tokens of CI systems and of the forges' command line tools.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_OURS = ("IMAGE_UPDATE_", "INPUT_")  # our options and secrets; the inputs of a GitHub action
_GITHUB = ("GITHUB_TOKEN", "GH_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_ENTERPRISE_TOKEN")
_GITLAB = ("GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN", "CI_JOB_TOKEN")
_AZURE = ("SYSTEM_ACCESSTOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN")
TOKENS = frozenset({
    "ARGOCD_AUTH_TOKEN", "ARGOCD_OPTS",
    *_GITHUB, "ACTIONS_RUNTIME_TOKEN",
    *_GITLAB, "CI_BUILD_TOKEN", "CI_JOB_JWT", "CI_JOB_JWT_V1", "CI_JOB_JWT_V2", "CI_DEPLOY_PASSWORD",
    "CI_REGISTRY_PASSWORD", "CI_DEPENDENCY_PROXY_PASSWORD", "CI_REPOSITORY_URL",  # the job's token is in that URL
    *_AZURE, "AZURE_DEVOPS_EXT_PAT",
    "GITEA_TOKEN", "FORGEJO_TOKEN", "CI_NETRC_PASSWORD", "BITBUCKET_STEP_OIDC_TOKEN",
    "DOCKER_AUTH_CONFIG",
})  # fmt: skip
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
    return {
        name: value
        for name, value in environ.items()
        if name in needed or not (name in TOKENS or name.startswith(_OURS))
    }


def needs(configured: Collection[str]) -> frozenset[str]:
    """Return the tokens that a program needs, according to the texts of its configuration.

    Ours are never among them.
    """
    named = {name for text in configured for name in _NAMED.findall(text)}
    known = {name for words, names in _KNOWN if any(words.search(text) for text in configured) for name in names}
    return TOKENS & (named | known)
