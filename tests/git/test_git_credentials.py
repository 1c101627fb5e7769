"""Which credentials each server receives: decided before connecting, and checked with git."""

import os
from pathlib import Path

import pytest

from task.errors import CredentialsError, UsageError
from task.git.command import Git
from task.git.credentials import Access, access_of
from task.git.errors import GitFailed
from task.settings import AccessOptions

TOKEN = {"IMAGE_UPDATE_GIT_TOKEN": "t0ken"}
GITHUB, GITLAB = (
    {"GITHUB_SERVER_URL": "https://github.com"},
    {"CI_SERVER_URL": "https://gitlab.example.com"},
)


def access(environ: dict[str, str] | None = None, **given: str | tuple[str, ...] | bool) -> Access:
    return access_of(AccessOptions(**given), environ or {})  # type: ignore[arg-type]


def shown(made: Access, *, helped: bool = False) -> list[tuple[str, str, str]]:
    return [(one.prefix, one.user, one.password.reveal()) for one in made.logins(helped=helped)]


def filled(made: Access, url: str, home: Path, *, configured: bool = True) -> str:
    """Return the credentials that git would send to a URL, or "" if it would send none."""
    door = Git({**os.environ, "HOME": str(home)}, access=made, configured=configured)
    try:
        said = door.run("credential", "fill", stdin=f"url={url}\n\n", env=door.login(url))
    except GitFailed:
        return ""
    finally:
        door.close()
    return next(
        line for line in said.out.decode().splitlines() if line.startswith("password=")
    ).partition("=")[2]


@pytest.mark.parametrize(
    ("environ", "urls", "expected"),
    [
        (
            TOKEN,
            ("https://git.example.com/",),
            [("https://git.example.com", "x-access-token", "t0ken")],
        ),
        (TOKEN | GITHUB, (), [("https://github.com", "x-access-token", "t0ken")]),
        (TOKEN | GITLAB, (), [("https://gitlab.example.com", "oauth2", "t0ken")]),
        (TOKEN | GITHUB, ("https://gitlab.com/a/",), [("https://gitlab.com/a", "oauth2", "t0ken")]),
        (TOKEN, ("https://bitbucket.org",), [("https://bitbucket.org", "x-token-auth", "t0ken")]),
        (
            {"IMAGE_UPDATE_GIT_TOKEN": "ATATT3xyz"},
            ("https://bitbucket.org",),
            [("https://bitbucket.org", "x-bitbucket-api-token-auth", "ATATT3xyz")],
        ),
        (GITHUB | {"GITHUB_TOKEN": "own"}, (), [("https://github.com", "x-access-token", "own")]),
        (
            GITHUB | {"GITHUB_TOKEN": "own"} | TOKEN,
            (),
            [("https://github.com", "x-access-token", "t0ken")],
        ),
        ({"GITHUB_TOKEN": "own"}, (), []),
        ({}, ("https://git.example.com/",), []),
    ],
)
def test_each_login_is_limited_to_its_server(
    environ: dict[str, str], urls: tuple[str, ...], expected: list[tuple[str, str, str]]
) -> None:
    assert shown(access(environ, git_credentials_url=urls)) == expected


def test_the_workflow_token_is_not_used_if_the_user_has_a_credential_helper() -> None:
    assert shown(access(GITHUB | {"GITHUB_TOKEN": "own"}), helped=True) == []


@pytest.mark.parametrize(
    ("scope", "url", "sent"),
    [
        ("https://git.example.com", "https://git.example.com/acme/x.git", True),
        ("https://git.example.com/acme", "https://git.example.com/acme/x.git", True),
        ("https://git.example.com/acme/x", "https://git.example.com/acme/x.git", True),
        ("https://git.example.com/acme/x.git", "https://git.example.com/acme/x.git", True),
        ("https://GIT.example.com:443/acme", "https://git.example.com/acme/x.git", True),
        ("https://git.example.com/acme", "https://git.example.com/acme-2/x.git", False),
        ("https://git.example.com/acme", "https://git.example.com/acme/../evil/x.git", False),
        ("https://git.example.com/acme", "https://git.example.com/acme/%2e%2e/evil/x.git", False),
        ("https://git.example.com", "https://git.example.com.evil.org/x.git", False),
        ("https://git.example.com", "https://git.example.com:8443/x.git", False),
        ("https://git.example.com", "http://git.example.com/x.git", False),
        ("http://git.example.com", "http://git.example.com/x.git", True),
        ("http://git.example.com", "https://git.example.com/x.git", False),
    ],
)
def test_a_token_is_sent_only_to_urls_within_its_scope(
    tmp_path: Path, scope: str, url: str, sent: bool
) -> None:
    assert filled(access(TOKEN, git_credentials_url=(scope,)), url, tmp_path) == (
        "t0ken" if sent else ""
    )


def test_url_rewriting_is_passed_to_git_before_the_login(tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text(
        '[url "https://evil.org/"]\n\tinsteadOf = https://git.example.com/\n'
    )
    door = Git({**os.environ, "HOME": str(tmp_path)})
    assert (
        door.login("https://git.example.com/x")["GIT_CONFIG_KEY_0"]
        == "url.https://evil.org/.insteadof"
    )


def test_our_login_replaces_the_credential_helper_only_for_its_server(tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text(
        '[credential]\n\thelper = "!printf \\"password=theirs\\\\n\\" #"\n'
    )
    made = access(TOKEN, git_credentials_url=("https://git.example.com",))
    assert filled(made, "https://u@git.example.com/x", tmp_path) == "t0ken"
    assert filled(made, "https://u@other.example.com/x", tmp_path) == "theirs"
    assert filled(made, "https://u@other.example.com/x", tmp_path, configured=False) == ""


def test_each_stored_credential_is_used_only_for_its_url(tmp_path: Path) -> None:
    lines = "# comment\nhttps://a:one@h.example/x\nhttps://b:two%40@h.example\nhttps://c:three@h.example\n"
    (tmp_path / ".git-credentials").write_text(lines)
    made = access(basic_auth_directory=str(tmp_path))
    assert filled(made, "https://h.example/x", tmp_path / "no") == "one"
    assert filled(made, "https://h.example/y", tmp_path / "no") == "two@"
    assert filled(made, "https://other.example/x", tmp_path / "no") == ""


def test_the_repr_of_credentials_reveals_no_secret() -> None:
    made = access(TOKEN, git_credentials_url=("https://git.example.com",))
    assert "t0ken" not in repr(made.given) + repr(made.logins(helped=False))


def test_our_secrets_are_not_in_gits_environment() -> None:
    door = Git({**os.environ, **TOKEN, "INPUT_GIT-TOKEN": "t0ken"})
    assert "t0ken" not in door.run("-c", "alias.tell=!env", "tell").out.decode()


def test_a_broken_git_configuration_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text("[broken\n")
    with pytest.raises(CredentialsError) as caught:
        Git({**os.environ, "HOME": str(tmp_path)}).login("https://git.example.com/x")
    assert "bad config line 1" in caught.value.message
    assert "--no-git-config" in caught.value.hint
    Git({**os.environ, "HOME": str(tmp_path)}, configured=False).login("https://git.example.com/x")


@pytest.mark.parametrize(
    ("environ", "given", "told"),
    [
        (TOKEN, {}, "--git-credentials-url"),
        (TOKEN | {"GITHUB_SERVER_URL": "ftp://x"}, {}, "--git-credentials-url"),
        ({"IMAGE_UPDATE_GIT_PASSWORD": "p"}, {"git_username": "ci"}, "--git-credentials-url"),
        ({}, {"git_username": "ci"}, "--git-password-file"),
        (TOKEN | {"IMAGE_UPDATE_GIT_PASSWORD": "p"} | GITHUB, {}, "both"),
        (TOKEN, {"git_credentials_url": ("git@git.example.com:",)}, "https://host/"),
        (TOKEN, {"git_credentials_url": ("https://u:p@git.example.com",)}, "https://host/"),
        (TOKEN, {"git_credentials_url": ("https://*.example.com",)}, "https://host/"),
        (TOKEN, {"git_credentials_url": ("git.example.com",)}, "https://host/"),
        ({"IMAGE_UPDATE_GIT_TOKEN": "a\nb"} | GITHUB, {}, "more than one line"),
        ({}, {"git_password_file": "/nonexistent"}, "/nonexistent"),
        ({}, {"basic_auth_directory": "/nonexistent"}, "/nonexistent"),
        ({}, {"ssh_directory": "/nonexistent"}, "/nonexistent"),
        ({}, {"ssh_key_file": "/nonexistent"}, "/nonexistent"),
        ({}, {"ssh_key_file": __file__}, "not a private key"),
        ({}, {"ca_file": "/nonexistent"}, "/nonexistent"),
        ({}, {"ca_file": "/etc/passwd"}, "no certificate"),
        ({}, {"ssh_host_key": ("ssh-ed25519 AAAA",)}, "ssh-keyscan"),
        ({}, {"github_app_id": "1"}, "--github-app-installation-id"),
        (
            {"IMAGE_UPDATE_GITHUB_APP_KEY": "-----BEGIN k"},
            {"github_app_id": "1", "github_app_installation_id": "x"},
            "not a number",
        ),
    ],
)
def test_invalid_credential_options_cause_usage_errors(
    environ: dict[str, str], given: dict[str, str | tuple[str, ...]], told: str
) -> None:
    with pytest.raises(UsageError) as caught:
        access(environ, **given)
    assert told in f"{caught.value.message} {caught.value.hint}"
    assert "t0ken" not in f"{caught.value.message} {caught.value.hint}"


def test_specified_certificate_authorities_are_added_to_those_of_the_system(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs.pem"
    ours.mkdir()
    (ours / "a.pem").write_text("-----BEGIN CERTIFICATE-----\nours\n")
    theirs.write_text("theirs")
    made = access({"SSL_CERT_FILE": str(theirs), "TMPDIR": str(tmp_path)}, ca_file=str(ours))
    bundle = Path(made.environment()["GIT_SSL_CAINFO"])
    assert bundle.read_text().split() == ["theirs", "-----BEGIN", "CERTIFICATE-----", "ours"]
    assert bundle.parent.stat().st_mode & 0o777 == 0o700
    made.close()
    assert not bundle.parent.exists()


def test_empty_credential_folders_are_ignored(tmp_path: Path) -> None:
    folder = str(tmp_path)
    made = access(basic_auth_directory=folder, ssh_directory=folder, ca_file=folder)
    assert (made.logins(helped=False), made.environment(), made.given.ssh) == ((), {}, None)
