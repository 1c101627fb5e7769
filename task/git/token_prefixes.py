"""Pure code that recognizes by its public prefix which kind of Git host issued a token."""

from __future__ import annotations

from task.secret import Secret

# As the Git hosts document them. Gitea, Forgejo and Azure DevOps have no prefix.
PREFIXES = {
    "github_pat_": "GitHub", "ghp_": "GitHub", "gho_": "GitHub", "ghu_": "GitHub", "ghs_": "GitHub", "ghr_": "GitHub",
    "glpat-": "GitLab", "gldt-": "GitLab", "glcbt-": "GitLab", "gloas-": "GitLab", "glptt-": "GitLab",
    "ATCTT3": "Bitbucket Cloud", "ATATT": "Bitbucket Cloud", "ATBB": "Bitbucket Cloud",
    "BBDC-": "Bitbucket Data Center",
}  # fmt: skip
ATLASSIAN = "ATATT"  # the API token of a person's account, which replaces app passwords
_ENDED = "ATBB"  # an app password
SERVERS = {
    "github": "GitHub",
    "gitlab": "GitLab",
    "gitea": "Gitea",
    "forgejo": "Forgejo",
    "codeberg.org": "Forgejo",
    "bitbucket.org": "Bitbucket Cloud",
    "dev.azure.com": "Azure DevOps",
    "visualstudio.com": "Azure DevOps",
}


def wrong_issuer(token: Secret, server: str, runs: str) -> str:
    """Return a sentence if another kind of Git host than the one that the server runs issued the token, else "".

    Bitbucket Cloud no longer issues app passwords, so one of these fits no server.
    """
    text = token.reveal()
    prefix, issuer = next((one for one in PREFIXES.items() if text.startswith(one[0])), ("", ""))
    if prefix == _ENDED and runs in ("", issuer):
        return "this is an app password, and Bitbucket's app passwords ended in June 2026: give an API token"
    if not prefix or runs in ("", issuer):
        return ""
    return f"this token begins with {prefix}, as {issuer}'s tokens do, but {server} runs {runs}: give one for {runs}"


def software_of(host: str, said: str = "") -> str:
    """Return what a Git server runs, if its host name or its own words tell, else ""."""
    if "http basic: access denied" in said.lower():
        return "GitLab"
    return next((software for name, software in SERVERS.items() if name in host.lower()), "")
