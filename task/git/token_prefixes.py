"""Pure code that recognizes by its public prefix which kind of Git host issued a token."""

from __future__ import annotations

from task.secret import Secret

# As the Git hosts document them. Gitea, Forgejo and Azure DevOps have no prefix.
PREFIXES = {
    "github_pat_": "GitHub", "ghp_": "GitHub", "gho_": "GitHub", "ghu_": "GitHub", "ghs_": "GitHub", "ghr_": "GitHub",
    "glpat-": "GitLab", "gldt-": "GitLab", "glcbt-": "GitLab", "gloas-": "GitLab", "glptt-": "GitLab",
    "ATCTT3": "Bitbucket Cloud", "ATBB": "Bitbucket Cloud", "BBDC-": "Bitbucket Data Center",
}  # fmt: skip
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
    """Return a sentence if another kind of Git host than the one that the server runs issued the token, else ""."""
    text = token.reveal()
    prefix, issuer = next((one for one in PREFIXES.items() if text.startswith(one[0])), ("", ""))
    if not prefix or runs in ("", issuer):
        return ""
    return f"this token begins with {prefix}, as {issuer}'s tokens do, but {server} runs {runs}: give one for {runs}"


def software_of(host: str, said: str = "") -> str:
    """Return what a Git server runs, if its host name or its own words tell, else ""."""
    if "http basic: access denied" in said.lower():
        return "GitLab"
    return next((software for name, software in SERVERS.items() if name in host.lower()), "")
