"""Which token a forge receives, and which hosts receive none."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from task.errors import CredentialsError, UsageError
from task.forges.client import ForgeAddress
from task.forges.places import Known, forge_option, place_of
from task.forges.tokens import Tokens, covers
from task.git.environment import Login
from task.secret import Secret

OURS = {"IMAGE_UPDATE_FORGE_TOKEN": "forge-token"}
ACTIONS = {"GITHUB_TOKEN": "actions-token", "GITHUB_SERVER_URL": "https://github.com"}


def place(url: str, *known: Known) -> ForgeAddress:
    found = place_of(url, known)
    assert found is not None
    return found


GITHUB = place("git@github.com:acme/deploy.git")
GITLAB, CI_SERVER = place("https://gitlab.com/acme/web"), {"CI_SERVER_URL": "https://gitlab.com"}
EVIL = place("https://evil.example/acme/deploy", Known("github", "https://evil.example"))


def login(prefix: str) -> Login:
    return Login(prefix, "bot", Secret("git-password"))


CHOSEN = [
    # given token, environment, Git credentials → token sent
    ({"forge": forge_option("github=https://github.com")}, OURS, (), "forge-token"),
    ({"forge": forge_option("github")}, OURS, (), "forge-token"),
    ({"scope": ("https://github.com/acme/",)}, OURS, (), "forge-token"),
    ({}, OURS | ACTIONS, (), "forge-token"),
    ({"scope": ("https://github.com",)}, OURS, (login("https://github.com"),), "forge-token"),
    ({}, {}, (login("https://github.com"),), "git-password"),
    ({}, ACTIONS, (login("https://github.com/acme"),), "git-password"),
    ({}, ACTIONS, (), "actions-token"),
    ({}, ACTIONS, (login("https://gitlab.com"),), "actions-token"),
    # the given token is for another forge, so Git's credentials are used here
    (
        {"scope": ("https://gitlab.com",)},
        OURS,
        (login("https://github.com"),),
        "git-password",
    ),
]


@pytest.mark.parametrize(("given", "environ", "logins", "token"), CHOSEN)
def test_the_matching_token_is_chosen_for_github(
    given: dict[str, Any], environ: dict[str, str], logins: Sequence[Login], token: str
) -> None:
    found = Tokens(environ, lambda _url: logins, **given).of(GITHUB)
    assert found.secret.reveal() == token


@pytest.mark.parametrize(
    ("given", "user"), [("", "x-bitbucket-api-token-auth"), ("me@example.com", "me@example.com")]
)
def test_an_api_user_name_can_replace_the_git_user_name(given: str, user: str) -> None:
    git_login = Login("https://bitbucket.org", "x-bitbucket-api-token-auth", Secret("ATATT3"))
    found = Tokens({}, lambda _url: (git_login,), user=given).of(
        place("https://bitbucket.org/acme/web")
    )
    assert (found.secret.reveal(), found.user) == ("ATATT3", user)


def test_the_repository_of_the_job_is_accessed_with_the_job_token() -> None:
    """The given token often grants access only to the GitOps repository."""
    tokens = Tokens(OURS | ACTIONS, lambda _url: (login("https://github.com"),))
    assert tokens.of_the_job(GITHUB, "a comment").secret.reveal() == "actions-token"
    assert Tokens(OURS | CI_SERVER).of_the_job(GITLAB, "a comment").secret.reveal() == "forge-token"
    with pytest.raises(
        CredentialsError, match=r"no API token for github\.com, which a comment requires"
    ):
        Tokens({}).of_the_job(GITHUB, "a comment")


def test_git_credentials_keep_their_user_name() -> None:
    found = Tokens({}, lambda _url: (login("https://github.com"),)).of(GITHUB)
    assert found.user == "bot"
    found = Tokens(OURS, user="a@b.example", scope=("https://github.com",)).of(GITHUB)
    assert found.user == "a@b.example"


def test_git_credentials_are_looked_up_for_the_repository_page() -> None:
    asked = []

    def logins(url: str) -> Sequence[Login]:
        asked.append(url)
        return ()

    with pytest.raises(CredentialsError):
        Tokens({}, logins).of(GITHUB)
    assert asked == ["https://github.com/acme/deploy"]


NOT_CHOSEN = [
    ({"forge": forge_option("github=https://github.com")}, OURS),
    ({"forge": forge_option("github")}, OURS),
    ({"scope": ("https://github.com",)}, OURS),
    ({}, OURS | ACTIONS),
    ({}, ACTIONS),
    ({}, {}),
]


@pytest.mark.parametrize(("given", "environ"), NOT_CHOSEN)
def test_no_token_is_sent_to_a_host_chosen_by_an_annotation(
    given: dict[str, Any], environ: dict[str, str]
) -> None:
    tokens = Tokens(
        environ,
        lambda _url: (login("https://github.com"), login("https://evil.example.org")),
        **given,
    )
    with pytest.raises(CredentialsError) as caught:
        tokens.of(EVIL)
    assert "evil.example" in caught.value.message
    assert (
        "--forge" in caught.value.hint
        or "--git-credentials-url https://evil.example/" in caught.value.hint
    )
    assert "token-" not in repr(caught.value)


def test_the_gitlab_job_token_is_not_used() -> None:
    environ = {"CI_JOB_TOKEN": "job", "CI_SERVER_URL": "https://gitlab.com"}
    with pytest.raises(CredentialsError):
        Tokens(environ).of(place("https://gitlab.com/a/b"))


def test_the_token_is_limited_to_the_jobs_gitlab_server() -> None:
    environ = OURS | {"CI_SERVER_URL": "https://git.example.com/gitlab"}
    ours = place(
        "https://git.example.com/gitlab/a/b", Known("gitlab", "https://git.example.com/gitlab")
    )
    assert Tokens(environ).of(ours).secret.reveal() == "forge-token"
    with pytest.raises(CredentialsError):
        Tokens(environ).of(GITHUB)


def test_the_azure_pipelines_token_is_limited_to_its_collection() -> None:
    environ = {
        "SYSTEM_ACCESSTOKEN": "azure-token",
        "SYSTEM_COLLECTIONURI": "https://dev.azure.com/acme/",
    }
    assert (
        Tokens(environ).of(place("https://dev.azure.com/acme/p/_git/r")).secret.reveal()
        == "azure-token"
    )
    with pytest.raises(CredentialsError):
        Tokens(environ).of(place("https://dev.azure.com/other/p/_git/r"))


def test_the_token_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    found = Tokens({}, file=str(file), scope=("https://github.com",)).of(GITHUB)
    assert found.secret.reveal() == "from-file"


def test_a_token_in_both_a_file_and_a_variable_causes_a_usage_error(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file")
    with pytest.raises(UsageError, match="both set"):
        Tokens(OURS, file=str(file), scope=("https://github.com",))


@pytest.mark.parametrize("text", ["", "\n", "two\nlines", "t\u00f6ken", "a\x00b", "a\x1bb"])
def test_a_file_without_a_valid_token_causes_a_usage_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        Tokens({}, file=str(file), scope=("https://github.com",))
    assert "--forge-token-file" in caught.value.message
    assert text.strip() == "" or text not in caught.value.message


def test_a_missing_token_file_causes_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        Tokens({}, file=str(tmp_path / "none"))


def test_a_token_without_a_known_server_causes_a_usage_error() -> None:
    with pytest.raises(UsageError) as caught:
        Tokens(OURS)
    assert "--git-credentials-url" in caught.value.hint
    assert "forge-token" not in str(caught.value)


@pytest.mark.parametrize(
    ("prefix", "web", "within"),
    [
        ("https://github.com", "https://github.com/acme/deploy", True),
        ("https://GitHub.com/", "https://github.com/acme/deploy", True),
        ("https://github.com:443", "https://github.com/acme/deploy", True),
        ("https://github.com/acme", "https://github.com/acme/deploy", True),
        ("https://github.com/acme/deploy", "https://github.com/acme/deploy", True),
        ("https://github.com/acm", "https://github.com/acme/deploy", False),
        ("https://github.com/acme/deploy/more", "https://github.com/acme/deploy", False),
        ("https://github.com", "https://github.com.evil.example/acme/deploy", False),
        ("https://github.com", "https://evil.example/github.com", False),
        ("https://github.com", "http://github.com/acme/deploy", False),
        ("http://gitea.local:3000", "http://gitea.local:3000/a/b", True),
        ("https://git.example.com", "https://git.example.com:8443/a/b", False),
        ("", "https://github.com/acme/deploy", False),
        ("github.com", "https://github.com/acme/deploy", False),
    ],
)
def test_a_prefix_covers_only_urls_below_it(prefix: str, web: str, within: bool) -> None:
    assert covers(prefix, web) is within
