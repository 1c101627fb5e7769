"""The environment of the programs that we start: it contains what they need, and no tokens that
they do not need.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from support import git, image_update, needs
from support.git_servers import git_server
from support.runs import application, arguments, hook, manifest, repository

from task.applications.rendering import run as render
from task.errors import Malformed, RegistryDownError, SourceAccessError
from task.git.command import Git
from task.git.credentials import Access, Credentials
from task.git.environment import Login
from task.git.errors import GitFailed
from task.kubernetes.access import plugin_credential
from task.kubernetes.kubeconfig import Plugin, Server
from task.processes import child_environment
from task.registry import logins
from task.secret import Secret
from task.settings import SECRETS

SECRET = "s3cret"
OURS = [*(name for name in SECRETS if name.startswith("IMAGE_UPDATE_")), "INPUT_GIT-TOKEN"]
THEIRS = [
    "ARGOCD_AUTH_TOKEN", "ARGOCD_OPTS", "DOCKER_AUTH_CONFIG",
    "GITHUB_TOKEN", "GH_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_PAT", "ACTIONS_RUNTIME_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL",
    "GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN", "GITLAB_OIDC_TOKEN", "GL_TOKEN", "CI_JOB_TOKEN", "CI_BUILD_TOKEN",
    "CI_JOB_JWT", "CI_JOB_JWT_V1", "CI_JOB_JWT_V2", "CI_DEPLOY_PASSWORD", "CI_REGISTRY_PASSWORD",
    "CI_DEPENDENCY_PROXY_PASSWORD",
    "CI_REPOSITORY_URL", "CI_BUILD_REPO",
    "SYSTEM_ACCESSTOKEN", "AZURE_DEVOPS_EXT_PAT", "ENDPOINT_AUTH_SYSTEMVSSCONNECTION",
    "BITBUCKET_STEP_OIDC_TOKEN", "REPOSITORY_OAUTH_ACCESS_TOKEN",
    "BUILDKITE_AGENT_ACCESS_TOKEN", "BUILDKITE_AGENT_JOB_API_TOKEN", "BUILDKITE_API_TOKEN",
    "CIRCLE_OIDC_TOKEN", "CIRCLE_OIDC_TOKEN_V2", "CIRCLE_TOKEN", "CIRCLE_INTERNAL_TASK_DATA_TOKEN",
    "CI_FORGE_TOKEN", "CI_NETRC_PASSWORD", "WOODPECKER_AGENT_SECRET", "DRONE_NETRC_PASSWORD", "DRONE_RPC_SECRET",
    "PLUGIN_PASSWORD", "GITEA_TOKEN", "FORGEJO_TOKEN", "SEMAPHORE_OIDC_TOKEN", "JENKINS_API_TOKEN",
    "SIGSTORE_ID_TOKEN", "VAULT_ID_TOKEN", "VAULT_TOKEN", "CR_PAT", "FORGE_TOKEN", "SYSTEMVSSCONNECTION_TOKEN",
    "bamboo_docker_password", "bamboo_secret_key", "PIPELINES_JWT_TOKEN", "GIT_TOKEN", "GIT_PASSWORD", "REGISTRY_PASSWORD",
    "COSIGN_PASSWORD", "COSIGN_PRIVATE_KEY", "MY_TOKEN", "NPM_CONFIG__AUTH", "npm_config__authtoken", "PGPASSWORD",
    "SONAR_TOKEN_1", "DB_PASS", "HARBOR_PSW", "STRIPE_API_KEYS", "GPG_PASSPHRASE", "SECRET_KEY_BASE",
]  # fmt: skip
HIDDEN = {name: f"{SECRET}-{name}" for name in (*OURS, *THEIRS)}
KEPT = {
    "AWS_SECRET_ACCESS_KEY": "kept-1", "AZURE_CLIENT_SECRET": "kept-2", "GOOGLE_APPLICATION_CREDENTIALS": "kept-3",
    "AWS_SESSION_TOKEN": "kept-4", "DIGITALOCEAN_ACCESS_TOKEN": "kept-5", "MY_TOKEN_FILE": "kept-6", "PATIENCE": "kept-7",
    "CI_COMMIT_REF_NAME": "kept-8", "CI_PROJECT_PATH": "kept-9", "GITHUB_PATH": "kept-10",
    "CI_COMMIT_AUTHOR": "kept-11", "SSH_AUTH_SOCK": "kept-12", "TOKENIZER": "kept-13", "KEYBOARD": "kept-14",
}  # fmt: skip
# The variables that git, its hooks, and signing programs need on this machine. All other variables
# are withheld from them, whatever their names.
BASIC = {
    "SSH_AUTH_SOCK": "kept-12", "https_proxy": "http://proxy.invalid:1", "NO_PROXY": "kept-15", "LC_MEASUREMENT": "kept-16",
    "SSL_CERT_DIR": "kept-17", "GNUPGHOME": "kept-18", "GIT_SSL_KEY": "kept-19", "XDG_RUNTIME_DIR": "kept-20",
}  # fmt: skip
ENVIRON = {**HIDDEN, **KEPT, **BASIC}


def program(folder: Path, name: str, then: str = "exit 1") -> Path:
    """Create a program that records its environment, and return its path."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\nenv >> {folder}/{name}.env\n{then}\n")
    path.chmod(0o755)
    return path


def told(folder: Path, name: str, kept: dict[str, str] = KEPT) -> None:
    lines = (folder / f"{name}.env").read_text().splitlines()
    assert [line for line in lines if SECRET in line] == []
    assert [
        f"{name}={value}" for name, value in kept.items() if f"{name}={value}" not in lines
    ] == []
    if kept is BASIC:
        others = ENVIRON.keys() - BASIC.keys()
        assert [line for line in lines if line.partition("=")[0] in others] == []


def environ_of(folder: Path, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        **ENVIRON,
        "HOME": str(folder),
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        **more,
    }


def test_git_its_hooks_and_the_signing_program_get_no_unneeded_tokens(tmp_path: Path) -> None:
    key = tmp_path / "id"
    subprocess.run([*needs("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    program(tmp_path, "ssh-keygen", f'exec {needs("ssh-keygen")[0]} "$@"')
    program(tmp_path, "git", f'exec {git(tmp_path, "--exec-path")}/git "$@"')
    repo = repository(tmp_path, "web")
    hook(repo, "pre-receive", f"env > {tmp_path}/hook.env")
    (tmp_path / ".gitconfig").write_text(
        f"[http]\n\textraHeader = Authorization: Bearer {SECRET}\n"
        '[credential]\n\thelper = "!f() { echo password=$GITHUB_TOKEN; }; f"\n'
    )
    signing = (
        "--signing-key",
        key,
        "--signing-format",
        "ssh",
        "--git-credentials-url",
        "https://git.example.com/",
    )
    registry = ("--registry-username", "u", "--registry-credentials-for", "ghcr.io")
    environ = environ_of(tmp_path)
    # The values of the first two are not real keys, and a token and a password must not both be
    # set.
    for name in (
        "IMAGE_UPDATE_SSH_KEY",
        "IMAGE_UPDATE_GITHUB_APP_KEY",
        "IMAGE_UPDATE_GIT_PASSWORD",
    ):
        del environ[name]
    result = image_update(
        *arguments(
            manifest(tmp_path, application("web", repo)),
            *signing,
            *registry,
            "--allow-env",
            "REGISTRY",
        ),
        env={**environ, "REGISTRY": f"u:{SECRET}"},
    )
    assert result.code == 0, result.stderr
    for name in ("git", "hook", "ssh-keygen"):
        told(tmp_path, name, BASIC)


def test_ssh_gets_no_unneeded_tokens(tmp_path: Path) -> None:
    ssh = program(tmp_path, "ssh")
    (tmp_path / ".gitconfig").write_text(
        f"[http]\n\textraHeader = Authorization: Bearer {SECRET}\n"
    )
    door = Git(environ_of(tmp_path, GIT_SSH_COMMAND=str(ssh)))
    url = "ssh://git.example.com/x"
    with pytest.raises(GitFailed):
        door.run("ls-remote", url, git_dir=str(tmp_path), env=door.login(url))
    door.close()
    told(tmp_path, "ssh")


@pytest.mark.parametrize(
    ("helper", "allowed"),
    [
        ("!{}", set()),
        ('!f() {{ TOKEN="$GITHUB_TOKEN" {}; }}; f', {"GITHUB_TOKEN"}),
        ('!f() {{ TOKEN="${{CI_JOB_TOKEN}}" {}; }}; f', {"CI_JOB_TOKEN"}),
        (
            "!gh auth git-credential; {}",
            {"GITHUB_TOKEN", "GH_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_ENTERPRISE_TOKEN"},
        ),
        ('!f() {{ TOKEN="$IMAGE_UPDATE_FORGE_TOKEN" {}; }}; f', set()),
        ("!{} --token-of GIT_PASSWORD", {"GIT_PASSWORD"}),
    ],
)
def test_a_git_credential_helper_gets_only_the_tokens_that_it_needs(
    tmp_path: Path, helper: str, allowed: set[str]
) -> None:
    mine = program(tmp_path, "helper")
    words = helper.format(mine).replace("\\", "\\\\").replace('"', '\\"')
    (tmp_path / ".gitconfig").write_text(f'[credential]\n\thelper = "{words}"\n')
    repository(tmp_path, "web")
    with git_server(tmp_path) as server:
        server.logins = {"u": "p"}
        url = f"{server.url}repo.git"
        login = Login("https://other.example.com", "u", Secret("p"))
        door = Git(environ_of(tmp_path), access=Access(Credentials((login,))))
        with pytest.raises(GitFailed):
            door.run("ls-remote", url, git_dir=str(tmp_path / "repo.git"), env=door.login(url))
        door.close()
    said = (tmp_path / "helper.env").read_text()
    assert {name for name in HIDDEN if f"{SECRET}-{name}\n" in said} == allowed
    assert "kept-1" in said


def test_registry_login_helpers_get_only_the_tokens_that_they_need(tmp_path: Path) -> None:
    environ = environ_of(tmp_path)
    answer = 'cat > /dev/null; echo \'{"Username": "u", "Secret": "p"}\''
    program(tmp_path, "docker-credential-ours", answer)
    logins.helper("ours", "ghcr.io", environ, needed=True)
    told(tmp_path, "docker-credential-ours")
    path = program(tmp_path, "login.sh", "echo u:p")
    assert logins.script(str(path), environ) == "u:p"
    told(tmp_path, "login.sh")
    path = program(tmp_path, "harbor.sh", 'echo "robot:$HARBOR_PSW"')
    assert logins.script(str(path), environ) == f"robot:{SECRET}-HARBOR_PSW"
    program(tmp_path, "docker-credential-mine", f": reads REGISTRY_PASSWORD; {answer}")
    logins.helper("mine", "ghcr.io", environ, needed=True)
    said = (tmp_path / "docker-credential-mine.env").read_text()
    assert [line for line in said.splitlines() if SECRET in line] == [
        f"REGISTRY_PASSWORD={SECRET}-REGISTRY_PASSWORD"
    ]
    program(tmp_path, "docker-credential-ghcr-login", answer)
    logins.helper("ghcr-login", "ghcr.io", environ, needed=True)
    assert f"GITHUB_TOKEN={SECRET}" in (tmp_path / "docker-credential-ghcr-login.env").read_text()


def test_an_exec_plugin_of_a_kubeconfig_gets_only_the_tokens_that_it_needs(tmp_path: Path) -> None:
    def asked(*args: str) -> None:
        with pytest.raises(SourceAccessError):
            plugin_credential(
                Plugin("plugin", args, env=(("OWN", "given"),)),
                Server("https://cluster"),
                environ_of(tmp_path),
            )

    program(tmp_path, "plugin")
    asked("get-token")
    told(tmp_path, "plugin")
    assert "OWN=given" in (tmp_path / "plugin.env").read_text()
    asked("kubelogin", "get-token", "--login", "azurepipelines")
    assert f"SYSTEM_ACCESSTOKEN={SECRET}" in (tmp_path / "plugin.env").read_text()


def test_a_program_killed_before_it_starts_is_reported_as_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is how the kernel kills a program when the step runs out of memory."""
    path, environ = program(tmp_path, "plugin"), environ_of(tmp_path)
    monkeypatch.setattr(os, "setsid", lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(SourceAccessError, match="killed before"):
        plugin_credential(Plugin("plugin", (), env=()), Server("https://cluster"), environ)
    with pytest.raises(RegistryDownError, match="killed before"):
        logins.script(str(path), environ)
    with pytest.raises(Malformed, match="cannot be started"):
        render([str(path)], {}, environ)


def test_the_askpass_script_of_git_gets_only_the_password_variable(tmp_path: Path) -> None:
    """Many CI steps are set up like this: GIT_ASKPASS names a script that prints a variable."""
    asked = program(tmp_path, "askpass", 'echo "$GIT_PASSWORD"')
    repository(tmp_path, "web")
    with git_server(tmp_path) as server:
        server.logins = {"u": f"{SECRET}-GIT_PASSWORD"}
        url = f"{server.url.replace('://', '://u@')}repo.git"
        door = Git(environ_of(tmp_path, GIT_ASKPASS=str(asked), https_proxy="", NO_PROXY="*"))
        assert door.run("ls-remote", door.url(url), env=door.login(url)).out
        door.close()
    lines = (tmp_path / "askpass.env").read_text().splitlines()
    assert {line.partition("=")[0] for line in lines if SECRET in line} == {"GIT_PASSWORD"}


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ((), set()),
        (("/usr/bin/docker-credential-vault-login",), {"VAULT_TOKEN"}),
        (("sh", "-c", 'exec plugin --token "$MY_TOKEN"'), {"MY_TOKEN"}),
        (("store --file /home/x/.github-credentials",), set()),
        (("ghost", "through", "glabrous"), set()),
        (("/usr/local/bin/gh auth git-credential",), {"GITHUB_TOKEN", "GH_TOKEN"}),
        (("glab", "cluster", "agent", "get-token"), {"GITLAB_TOKEN", "CI_JOB_TOKEN"}),
        (("echo $IMAGE_UPDATE_GIT_TOKEN $GITEA_TOKEN",), {"GITEA_TOKEN"}),
        (("login", "--token", "${CIRCLE_OIDC_TOKEN_V2}"), {"CIRCLE_OIDC_TOKEN_V2"}),
    ],
)
def test_the_command_line_decides_which_tokens_a_program_keeps(
    words: tuple[str, ...], kept: set[str]
) -> None:
    left = child_environment(ENVIRON, words)
    assert kept == {name for name in left if name in HIDDEN} & (kept or set(HIDDEN))
    assert KEPT.items() <= left.items()
