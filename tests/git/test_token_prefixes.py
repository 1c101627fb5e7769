"""A token for another kind of Git host is identified by its public prefix, and never shown."""

import pytest

from task.forges.client import SOFTWARE
from task.forges.places import FORGES
from task.git.errors import failure
from task.git.hosts import PREFIXES, SERVERS, software_of, wrong_issuer
from task.secret import Secret

REST = "0123456789abcdefSECRET"


@pytest.mark.parametrize(
    ("token", "runs", "said"),
    [
        (
            "ghp_",
            "GitLab",
            "this token starts with ghp_, like tokens from GitHub, but git.example.com runs GitLab",
        ),
        (
            "github_pat_",
            "Gitea",
            "starts with github_pat_, like tokens from GitHub, but git.example.com runs Gitea",
        ),
        ("ghs_", "Azure DevOps", "starts with ghs_, like tokens from GitHub"),
        (
            "glpat-",
            "GitHub",
            "starts with glpat-, like tokens from GitLab, but git.example.com runs GitHub",
        ),
        ("gldt-", "Bitbucket Cloud", "starts with gldt-, like tokens from GitLab"),
        ("ATATT", "GitHub", "starts with ATATT, like tokens from Bitbucket Cloud"),
        ("ATATT", "Bitbucket Cloud", ""),
        ("ATBB", "Bitbucket Cloud", "Bitbucket removed app passwords in June 2026"),
        ("ATBB", "GitHub", "starts with ATBB, like tokens from Bitbucket Cloud"),
        ("ATCTT3", "Bitbucket Data Center", "but git.example.com runs Bitbucket Data Center"),
        ("BBDC-", "Bitbucket Cloud", "starts with BBDC-, like tokens from Bitbucket Data Center"),
        ("ghp_", "GitHub", ""),
        ("glpat-", "GitLab", ""),
        ("ghp_", "", ""),  # the server's software is unknown
        ("", "GitLab", ""),  # Gitea, Azure DevOps, a password
        ("GHP_", "GitLab", ""),
    ],
)
def test_a_token_prefix_from_another_forge_is_reported_without_the_token(
    token: str, runs: str, said: str
) -> None:
    found = wrong_issuer(Secret(token + REST), "git.example.com", runs)
    assert said in found
    assert bool(said) == bool(found)
    assert REST not in found


def test_an_empty_token_is_not_reported() -> None:
    assert not wrong_issuer(Secret(""), "git.example.com", "GitLab")


@pytest.mark.parametrize(
    ("host", "said", "runs"),
    [
        ("github.com", "", "GitHub"),
        ("gitlab.example.com", "", "GitLab"),
        ("git.example.com", "remote: HTTP Basic: Access denied.", "GitLab"),
        ("codeberg.org", "", "Forgejo"),
        ("acme.visualstudio.com", "", "Azure DevOps"),
        ("git.example.com", "fatal: Authentication failed", ""),
    ],
)
def test_a_servers_software_is_recognized(host: str, said: str, runs: str) -> None:
    assert software_of(host, said) == runs


REFUSED = "fatal: Authentication failed for 'https://gitlab.example.com/acme/deploy/'"
USUAL = "check the username and the password or token for this server"


@pytest.mark.parametrize(
    ("stderr", "token", "hint"),
    [
        (REFUSED, "ghp_", "but gitlab.example.com runs GitLab: use a token from GitLab"),
        (REFUSED, "glpat-", USUAL),
        (REFUSED, "", USUAL),
        (
            "fatal: could not read Username for 'https://gitlab.example.com'",
            "ghp_",
            "set IMAGE_UPDATE_GIT_TOKEN",
        ),
    ],
)
def test_a_rejected_login_with_a_token_for_another_forge_leads_to_a_hint(
    stderr: str, token: str, hint: str
) -> None:
    error = failure(
        stderr,
        "https://gitlab.example.com/acme/deploy@main",
        (),
        Secret(token + REST),
        "gitlab.example.com",
    )
    assert hint in error.hint
    assert REST not in f"{error}{error.hint}"


def test_every_forge_has_a_name() -> None:
    assert SOFTWARE.keys() == FORGES.keys()
    named = {one for software in SOFTWARE.values() for one in software.split(" or ")}
    assert {*PREFIXES.values(), *SERVERS.values()} <= named
