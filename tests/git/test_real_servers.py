"""Complete runs against real Git servers: all kinds of logins and failures, and no secret shown."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from support import IN_CI, Result, command, git, image_update, needs, show
from support.real_servers import PASSWORD, READER, USER, Nginx, Sshd, git_daemon
from support.runs import application, arguments, manifest, repository, target

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("servers")]
SECRETS = (PASSWORD, "s3cret-pass%2Fw%40rd")
ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


class Scene:
    """One repository with one Application, and a separate temporary folder and home folder."""

    def __init__(self, folder: Path, repos: Path) -> None:
        self.repo = repository(repos, "web", name=f"{os.urandom(4).hex()}.git")
        self.folder, self.temporary, self.home = folder, folder / "tmp", folder / "home"
        self.temporary.mkdir()
        self.home.mkdir()

    @property
    def name(self) -> str:
        return self.repo.name

    def run(self, url: str, *more: str | Path, **env: str) -> Result:
        """Run, and check that the temporary folder is empty and that no secret was printed."""
        args = arguments(manifest(self.folder, application("web", url)), *more)
        result = image_update(
            *args, env={"TMPDIR": str(self.temporary), "HOME": str(self.home), **env}
        )
        assert list(self.temporary.iterdir()) == []
        assert not [one for one in SECRETS if one in result.stdout + result.stderr]
        return result

    def landed(self) -> bool:
        return "newTag: 1.1.0" in show(self.repo, "main", target("web"))

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture
def scene(tmp_path: Path, repos: Path) -> Scene:
    return Scene(tmp_path, repos)


def password(scene: Scene, web: Nginx, user: str = USER, words: str = PASSWORD) -> list[str | Path]:
    """Return the correct options for https."""
    file = scene.file("password", f"{words}\n")
    server = ("--git-credentials-url", f"https://localhost:{web.tls}/", "--ca-file", web.ca)
    return ["--git-username", user, "--git-password-file", file, *server]


def key(ssh: Sshd) -> list[str | Path]:
    """Return the correct options for ssh."""
    return ["--ssh-key-file", ssh.key, "--ssh-host-key", ssh.host_key]


# https: ways to log in


def test_a_push_with_a_user_name_and_a_password_file_lands(scene: Scene, web: Nginx) -> None:
    result = scene.run(web.url(scene.name), *password(scene, web))
    assert (result.code, scene.landed()) == (0, True), result.stderr


def test_a_push_with_a_token_in_a_variable_lands(scene: Scene, web: Nginx) -> None:
    url, env = (
        web.url(scene.name),
        {"IMAGE_UPDATE_GIT_TOKEN": PASSWORD, "IMAGE_UPDATE_GIT_USERNAME": USER},
    )
    scope = f"https://localhost:{web.tls}/{scene.name.removesuffix('.git')}"
    result = scene.run(url, "--git-credentials-url", scope, "--ca-file", web.ca, **env)
    assert (result.code, scene.landed()) == (0, True), result.stderr


def test_a_token_is_used_for_the_ci_systems_server(scene: Scene, web: Nginx) -> None:
    env = {"IMAGE_UPDATE_GIT_TOKEN": PASSWORD, "CI_SERVER_URL": f"https://localhost:{web.tls}"}
    result = scene.run(web.url(scene.name), "--git-username", USER, "--ca-file", web.ca, **env)
    assert (result.code, scene.landed()) == (0, True), result.stderr


def test_a_basic_auth_workspace_as_in_the_tekton_catalog_works(scene: Scene, web: Nginx) -> None:
    scene.file("ws/.gitconfig", f'[credential "https://localhost:{web.tls}"]\n\thelper = store\n')
    scene.file("ws/.git-credentials", f"https://{USER}:{SECRETS[1]}@localhost:{web.tls}\n")
    result = scene.run(
        web.url(scene.name), "--basic-auth-directory", scene.folder / "ws", "--ca-file", web.ca
    )
    assert (result.code, scene.landed()) == (0, True), result.stderr


def test_a_kubernetes_basic_auth_secret_requires_a_credentials_url(
    scene: Scene, web: Nginx
) -> None:
    scene.file("ws/username", USER)
    scene.file("ws/password", PASSWORD)
    more = ("--basic-auth-directory", scene.folder / "ws", "--ca-file", web.ca)
    refused = scene.run(web.url(scene.name), *more)
    assert refused.code == 2
    assert "--git-credentials-url" in refused.stderr
    result = scene.run(
        web.url(scene.name), *more, "--git-credentials-url", f"https://localhost:{web.tls}"
    )
    assert (result.code, scene.landed()) == (0, True), result.stderr


def creds_init(scene: Scene, web: Nginx) -> None:
    """Write the files that Tekton puts into HOME for a ServiceAccount with a basic-auth Secret."""
    server = f"https://localhost:{web.tls}"
    helper = f'[credential]\n\thelper = store\n[credential "{server}"]\n\tusername = {USER}\n'
    scene.file("home/.gitconfig", f"{helper}[http]\n\tsslCAInfo = {web.ca}\n")
    scene.file("home/.git-credentials", f"https://{USER}:{SECRETS[1]}@localhost:{web.tls}\n")


def test_credentials_that_tekton_puts_into_the_home_folder_are_used(
    scene: Scene, web: Nginx
) -> None:
    creds_init(scene, web)
    result = scene.run(web.url(scene.name))
    assert (result.code, scene.landed()) == (0, True), result.stderr


def test_the_no_git_config_option_ignores_the_credentials_in_the_home_folder(
    scene: Scene, web: Nginx
) -> None:
    creds_init(scene, web)
    result = scene.run(web.url(scene.name), "--no-git-config", "--ca-file", web.ca)
    assert result.code == 4
    assert not scene.landed()


def test_the_users_credential_helper_does_not_store_our_password(scene: Scene, web: Nginx) -> None:
    scene.file("home/.gitconfig", "[credential]\n\thelper = store\n")
    assert scene.run(web.url(scene.name), *password(scene, web)).code == 0
    assert sorted(path.name for path in scene.home.iterdir()) == [".gitconfig"]


def test_url_rewriting_in_the_configuration_of_the_user_is_applied(scene: Scene, ssh: Sshd) -> None:
    scene.file(
        "home/.gitconfig",
        f'[url "{ssh.url(scene.repo.parent)}/"]\n\tinsteadOf = https://git.example.com/\n',
    )
    result = scene.run(f"https://git.example.com/{scene.name}", *key(ssh))
    assert (result.code, scene.landed()) == (0, True), result.stderr


def test_the_rest_of_the_users_configuration_changes_nothing(scene: Scene, web: Nginx) -> None:
    hostile = f"[core]\n\thooksPath = {scene.folder}\n[push]\n\tgpgSign = true\n[commit]\n\tgpgSign = true\n[fetch]\n"
    scene.file(
        "home/.gitconfig",
        f"{hostile}\tprune = true\n[protocol]\n\tallow = never\n[alias]\n\tfetch = !false\n",
    )
    scene.file("pre-push", "#!/bin/sh\nexit 1\n").chmod(0o755)
    result = scene.run(web.url(scene.name), *password(scene, web))
    assert (result.code, scene.landed()) == (0, True), result.stderr


def test_a_client_certificate_from_git_variables_is_used(scene: Scene, web: Nginx) -> None:
    url = f"https://localhost:{web.client}/{scene.name}"
    env = {"GIT_SSL_CERT": str(web.certificate), "GIT_SSL_KEY": str(web.certificate_key)}
    more = [*password(scene, web), "--git-credentials-url", f"https://localhost:{web.client}"]
    result = scene.run(url, *more, **env)
    assert (result.code, scene.landed()) == (0, True), result.stderr
    assert scene.run(url, *more, IMAGE_UPDATE_IMAGE="").code == 4


def test_a_push_with_a_login_in_the_url_lands(scene: Scene, web: Nginx) -> None:
    url = web.url(scene.name).replace("https://", f"https://{USER}:{SECRETS[1]}@")
    result = scene.run(url, "--ca-file", web.ca)
    assert (result.code, scene.landed()) == (0, True), result.stderr


# https: servers that must not receive the password


def test_a_password_is_not_sent_to_another_server(scene: Scene, web: Nginx) -> None:
    before = web.told.read_text()
    result = scene.run(f"https://127.0.0.1:{web.thief}/{scene.name}", *password(scene, web))
    assert result.code == 4
    assert "Basic" not in web.told.read_text()[len(before) :]


def test_a_redirect_does_not_carry_the_password_to_another_server(scene: Scene, web: Nginx) -> None:
    before = len(web.told.read_text())
    result = scene.run(web.url(f"moved/{scene.name}"), *password(scene, web))
    said = web.told.read_text()[before:]
    assert result.code == 4
    assert scene.name in said
    assert "Basic" not in said


def test_a_password_is_sent_over_plain_http_only_if_the_url_is_named(
    scene: Scene, web: Nginx
) -> None:
    url = web.url(scene.name, "http")
    more = password(scene, web)
    assert scene.run(url, *more).code == 4
    result = scene.run(url, *more, "--git-credentials-url", f"http://localhost:{web.plain}/")
    assert (result.code, scene.landed()) == (0, True), result.stderr


def test_credentials_without_a_server_are_a_usage_error(scene: Scene, web: Nginx) -> None:
    result = scene.run(web.url(scene.name), IMAGE_UPDATE_GIT_TOKEN=PASSWORD)
    assert result.code == 2
    assert "--git-credentials-url" in result.stderr


# https: what is reported for each failure


def problem(result: Result) -> tuple[int, str, str]:
    (decision,) = result.json["decisions"]
    (error,) = result.json["errors"]
    return result.code, decision["rule"], f"{decision['because']} {error['hint']}"


@pytest.mark.parametrize(
    ("user", "words", "path", "code", "rule", "told"),
    [
        (USER, "wrong", "{}", 4, "credentials", "did not accept the credentials"),
        (READER, PASSWORD, "{}", 4, "repository", "403"),
        (USER, PASSWORD, "nothing-{}", 4, "repository", "not found, or access to it was denied"),
        (USER, PASSWORD, "broken/{}", 75, "repository", "503"),
    ],
)
def test_rejected_https_requests_are_reported(
    scene: Scene, web: Nginx, user: str, words: str, path: str, code: int, rule: str, told: str
) -> None:
    result = scene.run(web.url(path.format(scene.name)), *password(scene, web, user, words))
    assert problem(result)[:2] == (code, rule)
    assert told in problem(result)[2]
    assert not scene.landed()


def test_missing_credentials_cause_a_credentials_error(scene: Scene, web: Nginx) -> None:
    code, rule, told = problem(scene.run(web.url(scene.name), "--ca-file", web.ca))
    assert (code, rule) == (4, "credentials")
    assert "--git-credentials-url" in told


def test_an_unknown_certificate_authority_is_a_credentials_error(scene: Scene, web: Nginx) -> None:
    code, rule, told = problem(scene.run(web.url(scene.name)))
    assert (code, rule) == (4, "credentials")
    assert "certificate" in told
    assert "--ca-file" in told


def test_a_closed_port_causes_a_temporary_error(scene: Scene) -> None:
    code, rule, told = problem(scene.run("https://127.0.0.1:9/x.git"))
    assert (code, rule) == (75, "repository")
    assert "could not be reached" in told


@pytest.mark.parametrize(
    ("policy", "code", "rule", "told"),
    [
        ("echo 'by policy: freeze' >&2; exit 1", 4, "repository", "by policy: freeze"),
        (
            "echo 'GitLab: You are not allowed to push code to protected branches' >&2; exit 1",
            4,
            "repository",
            "GitLab",
        ),
    ],
)
def test_the_message_of_a_rejecting_hook_is_shown(
    scene: Scene, web: Nginx, policy: str, code: int, rule: str, told: str
) -> None:
    hook = scene.repo / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{policy}\n")
    hook.chmod(0o755)
    result = problem(scene.run(web.url(scene.name), *password(scene, web)))
    assert result[:2] == (code, rule)
    assert told in result[2]


# ssh


def test_a_push_with_a_key_file_and_a_host_key_lands(scene: Scene, ssh: Sshd) -> None:
    result = scene.run(ssh.url(scene.repo), *key(ssh))
    assert (result.code, scene.landed()) == (0, True), result.stderr


def test_a_key_in_a_variable_works_without_its_last_newline(scene: Scene, ssh: Sshd) -> None:
    known = scene.file("known", f"{ssh.host_key}\n")
    url, text = ssh.url(scene.repo), ssh.key.read_text().strip()
    result = scene.run(url, "--ssh-known-hosts-file", known, IMAGE_UPDATE_SSH_KEY=text)
    assert (result.code, scene.landed()) == (0, True), result.stderr


def workspace(scene: Scene, ssh: Sshd, at: str, *, config: str = "") -> Path:
    """Return a folder like a mounted Secret: the files are links into `..data`, readable by all."""
    scene.file(f"{at}/..data/id_ed25519", ssh.key.read_text()).chmod(0o644)
    scene.file(f"{at}/..data/known_hosts", f"{ssh.host_key}\n")
    scene.file(f"{at}/..data/config", config)
    for name in ("id_ed25519", "known_hosts", "config"):
        (scene.folder / at / name).symlink_to(f"..data/{name}")
    return scene.folder / at


def test_an_ssh_workspace_as_in_the_tekton_catalog_works(scene: Scene, ssh: Sshd) -> None:
    config = f"Host git-server\n  HostName 127.0.0.1\n  Port {ssh.port}\n  User root\n  IdentityFile ~/.ssh/id_ed25519\n"
    folder = workspace(scene, ssh, "ws", config=config)
    result = scene.run(f"git-server:{scene.repo}", "--ssh-directory", folder)
    assert (result.code, scene.landed()) == (0, True), result.stderr


def test_ssh_files_are_read_from_a_home_that_differs_from_the_passwd_entry(
    scene: Scene, ssh: Sshd
) -> None:
    config = f"Host 127.0.0.1\n  IdentityFile {scene.home}/.ssh/id_ed25519\n"
    workspace(scene, ssh, "home/.ssh", config=config)
    result = scene.run(ssh.url(scene.repo))
    assert (result.code, scene.landed()) == (0, True), result.stderr


def test_an_empty_ssh_workspace_is_treated_as_absent(scene: Scene, ssh: Sshd) -> None:
    (scene.folder / "empty").mkdir()
    workspace(scene, ssh, "home/.ssh")
    result = scene.run(ssh.url(scene.repo), "--ssh-directory", scene.folder / "empty")
    assert (result.code, scene.landed()) == (0, True), result.stderr


def test_an_unknown_host_key_is_a_credentials_error(scene: Scene, ssh: Sshd) -> None:
    code, rule, told = problem(scene.run(ssh.url(scene.repo), "--ssh-key-file", ssh.key))
    assert (code, rule) == (4, "credentials")
    assert "host key is not known" in told
    assert "--ssh-host-key" in told


def test_a_changed_host_key_is_a_credentials_error(scene: Scene, ssh: Sshd) -> None:
    other = f"{ssh.host_key.split()[0]} {ssh.stranger.with_suffix('.pub').read_text()}"
    code, rule, told = problem(
        scene.run(ssh.url(scene.repo), "--ssh-key-file", ssh.key, "--ssh-host-key", other)
    )
    assert (code, rule) == (4, "credentials")
    assert "host key has changed" in told


def test_a_key_that_the_server_does_not_accept_causes_a_credentials_error(
    scene: Scene, ssh: Sshd
) -> None:
    more = ("--ssh-key-file", ssh.stranger, "--ssh-host-key", ssh.host_key)
    code, rule, told = problem(scene.run(ssh.url(scene.repo), *more))
    assert (code, rule) == (4, "credentials")
    assert "did not accept the SSH key" in told


def test_a_key_with_a_passphrase_is_rejected_before_any_server_is_contacted(
    scene: Scene, ssh: Sshd
) -> None:
    before = ssh.log.read_text()
    result = scene.run(
        ssh.url(scene.repo), "--ssh-key-file", ssh.locked, "--ssh-host-key", ssh.host_key
    )
    assert result.code == 2
    assert "passphrase" in result.stderr
    assert ssh.log.read_text() == before


def test_a_missing_repository_over_ssh_is_a_repository_error(scene: Scene, ssh: Sshd) -> None:
    code, rule, told = problem(scene.run(ssh.url(scene.repo.with_name("nothing.git")), *key(ssh)))
    assert (code, rule) == (4, "repository")
    assert "not found, or access to it was denied" in told


# https and ssh


def test_the_unauthenticated_git_protocol_is_refused(scene: Scene) -> None:
    with git_daemon(scene.repo.parent, scene.folder / "daemon.log") as port:
        result = scene.run(f"git://127.0.0.1:{port}/{scene.name}")
    assert problem(result)[:2] == (3, "source")
    assert not scene.landed()


@pytest.mark.parametrize("way", ["https", "ssh"])
def test_no_process_argument_contains_a_secret(
    scene: Scene, web: Nginx, ssh: Sshd, way: str
) -> None:
    strace, trace = needs("strace"), scene.folder / "trace"
    url, more = (
        (web.url(scene.name), password(scene, web))
        if way == "https"
        else (ssh.url(scene.repo), key(ssh))
    )
    args = arguments(manifest(scene.folder, application("web", url)), *map(str, more))
    watch = [*strace, "-f", "-qq", "-e", "trace=execve", "-s", "100000", "-o", str(trace)]
    env = {**os.environ, "TMPDIR": str(scene.temporary), "HOME": str(scene.home)}
    done = subprocess.run([*watch, command(), *args], env=env, capture_output=True, check=False)
    if not trace.exists() or b"Operation not permitted" in done.stderr:
        pytest.skip("nothing may be traced here")
    seen = trace.read_text()
    assert (done.returncode, scene.landed()) == (0, True), done.stderr
    assert "git-remote-https" in seen if way == "https" else '"ssh"' in seen
    key_lines = ssh.key.read_text().splitlines()[1:-1]
    assert not [one for one in (*SECRETS, *key_lines) if one in seen]


def read_only(but: Path) -> list[str]:
    """Return a command prefix that makes all but one folder read-only, or [] if forbidden."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        return []
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro / && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(but)]


@ROOT_ONLY
@pytest.mark.parametrize(
    ("way", "home"), [("https", ""), ("ssh", "/root"), ("ssh", "/nonexistent"), ("ssh", "")]
)
def test_an_arbitrary_user_id_works_without_its_own_home_folder(
    scene: Scene, web: Nginx, ssh: Sshd, way: str, home: str
) -> None:
    setpriv, ground = needs("setpriv"), Path("/tmp", f"any-{os.urandom(4).hex()}")
    if way == "ssh" and not list(Path("/usr/lib").glob("**/libnss_wrapper.so")):
        assert not IN_CI, "libnss_wrapper is not here; .ci/run installs it"
        pytest.skip("libnss_wrapper is not here")
    more = password(scene, web) if way == "https" else key(ssh)
    ground.mkdir(mode=0o711)
    try:
        given = []
        for number, one in enumerate(more):
            given.append(ground / str(number) if isinstance(one, Path) else one)
            if isinstance(one, Path):
                shutil.copy(one, given[-1])
                os.chown(given[-1], 0, 0)
                os.chmod(given[-1], 0o440)
        (ground / "tmp").mkdir(mode=0o1777)
        (ground / "tmp").chmod(0o1777)
        url = web.url(scene.name) if way == "https" else ssh.url(scene.repo)
        args = arguments(manifest(ground, application("web", url)), *map(str, given))
        env = {**os.environ, "HOME": home, "TMPDIR": str(ground / "tmp")}
        nobody = [
            *read_only(ground / "tmp"),
            *setpriv,
            "--reuid",
            "54321",
            "--regid",
            "0",
            "--clear-groups",
        ]
        done = subprocess.run(
            [*nobody, command(), *args], env=env, cwd="/", capture_output=True, check=False
        )
        assert (done.returncode, scene.landed()) == (0, True), done.stderr
        assert list((ground / "tmp").iterdir()) == []
        assert b"Permission denied" not in done.stderr
    finally:
        shutil.rmtree(ground)


@pytest.mark.parametrize("way", ["https", "ssh"])
def test_copies_of_keys_are_gone_after_a_signal(
    scene: Scene, web: Nginx, ssh: Sshd, way: str
) -> None:
    hook = scene.repo / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {scene.folder}/pushing\nsleep 5\n")
    hook.chmod(0o755)
    url, more = (
        (web.url(scene.name), password(scene, web))
        if way == "https"
        else (ssh.url(scene.repo), key(ssh))
    )
    args = arguments(manifest(scene.folder, application("web", url)), *map(str, more))
    env = {**os.environ, "TMPDIR": str(scene.temporary), "HOME": str(scene.home)}
    with subprocess.Popen(
        [command(), *args], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as running:
        wait_for(scene.folder / "pushing")
        copies = [path.name for path in scene.temporary.rglob("*")]
        running.terminate()
        _, said = running.communicate(timeout=10)
    assert (
        {"ca.pem"} <= set(copies)
        if way == "https"
        else {"image-update-key", "known_hosts"} <= set(copies)
    )
    assert running.returncode == 143, said
    assert list(scene.temporary.iterdir()) == []
    hook.unlink()
    result = scene.run(url, *more)
    assert (result.code, scene.landed()) == (0, True), result.stderr


def wait_for(path: Path) -> None:
    for _ in range(400):
        if path.exists():
            return
        time.sleep(0.05)
    raise AssertionError(path)


def test_a_run_opens_only_one_ssh_connection(scene: Scene, ssh: Sshd) -> None:
    before = ssh.log.read_text().count("Accepted publickey")
    assert scene.run(ssh.url(scene.repo), *key(ssh)).code == 0
    assert ssh.log.read_text().count("Accepted publickey") - before == 1
    assert git(scene.repo, "log", "--format=%an", "-1") == "image-update"
