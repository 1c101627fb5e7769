"""Signed commits, verified with the usual programs: git verify-commit with gpg and ssh-keygen."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Result, commit, git, image_update, needs
from support.runs import WEB, application, arguments, manifest, repository, start, wait_until

from task.errors import UsageError
from task.git.signing import key_of
from task.secret import Secret

WHO = ("--git-author-name", "Signer", "--git-author-email", "signer@example.com")


def tool(*argv: str, env: dict[str, str] | None = None, stdin: str = "") -> str:
    environ = {**os.environ, **(env or {})}
    done = subprocess.run(
        argv, env=environ, input=stdin, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def ssh_key(tmp_path: Path) -> Path:
    needs("ssh-keygen")
    tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "signer", "-f", str(tmp_path / "id"))
    return tmp_path / "id"


@pytest.fixture(scope="module")
def keyring() -> Iterator[dict[str, str]]:
    """Yield a keyring with one key to check signatures. The path is short, as sockets require."""
    needs("gpg")
    folder = Path(tool("mktemp", "-d", "/tmp/gpg-XXXXXX").strip())
    env = {"GNUPGHOME": str(folder)}
    who = "Signer <signer@example.com>"
    tool("gpg", "--batch", "--passphrase", "", "--quick-gen-key", who, "ed25519", "sign", env=env)
    yield env
    subprocess.run(["gpgconf", "--kill", "all"], env={**os.environ, **env}, check=False)
    tool("rm", "-rf", str(folder))


@pytest.fixture
def pgp_key(keyring: dict[str, str]) -> str:
    return tool("gpg", "--batch", "--armor", "--export-secret-keys", env=keyring)


class Scene:
    def __init__(self, folder: Path) -> None:
        self.repo = repository(folder, "a")
        self.apps = manifest(folder, application("a", self.repo))
        self.scratch = folder / "scratch"
        self.scratch.mkdir()

    def run(self, *more: str | Path, env: dict[str, str] | None = None) -> Result:
        environ = {"TMPDIR": str(self.scratch), **(env or {})}
        done = image_update(*arguments(self.apps, *WHO, *more), env=environ)
        wait_until(lambda: not list(self.scratch.iterdir()))
        return done


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def project(scene: Scene, *keys: str) -> None:
    """Add an AppProject, so that Argo CD only syncs commits signed with these keys."""
    spec = {"signatureKeys": [{"keyID": key} for key in keys]}
    item = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AppProject",
        "metadata": {"name": "default"},
        "spec": spec,
    }
    scene.apps.write_text(f"{scene.apps.read_text()}\n---\n{json.dumps(item)}\n")


def test_a_commit_that_argo_cd_would_not_sync_is_not_pushed(
    scene: Scene, ssh_key: Path, keyring: dict[str, str]
) -> None:
    wanted = "D56C4FCA57A46444"
    project(scene, wanted)
    before = git(scene.repo, "rev-parse", "main")
    unsigned, by_ssh = scene.run(), scene.run("--signing-key", ssh_key)
    by_another = scene.run("--signing-key", "signer@example.com", env=keyring)
    planned = image_update("plan", *arguments(scene.apps)[1:])
    message = f"in project default, Argo CD only syncs commits signed by {wanted}; this commit "
    for result in (unsigned, by_ssh, planned):
        assert result.code == 4
        assert f"{message}has no OpenPGP signature" in result.stderr
    assert by_another.code == 4
    assert f"{message}is signed by " in by_another.stderr
    assert git(scene.repo, "rev-parse", "main") == before
    linted = image_update("lint", scene.apps)
    assert linted.code == 0
    assert (
        f"info: argocd/a: in project default, Argo CD only syncs commits signed by {wanted}"
        in linted.stdout
    )


@pytest.mark.parametrize("by", ["key", "keyring"])
def test_a_commit_signed_with_a_key_that_argo_cd_accepts_is_pushed(
    scene: Scene, pgp_key: str, keyring: dict[str, str], by: str
) -> None:
    listed = tool("gpg", "--batch", "--with-colons", "--list-secret-keys", env=keyring)
    project(
        scene, next(line.split(":")[4] for line in listed.splitlines() if line.startswith("sec:"))
    )
    assert scene.run().code == 4
    env = {"IMAGE_UPDATE_SIGNING_KEY": pgp_key} if by == "key" else keyring
    more = () if by == "key" else ("--signing-key", "signer@example.com")
    result = scene.run(*more, env=env)
    assert (result.code, result.json["status"]) == (0, "updated"), result.stderr


def verified_ssh(scene: Scene, key: Path, branch: str = "main") -> str:
    allowed = key.parent / "allowed"
    allowed.write_text(f"signer@example.com {key.with_suffix('.pub').read_text()}")
    settings = ("-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={allowed}")
    return tool(
        "git",
        "-C",
        str(scene.repo),
        *settings,
        "log",
        "-1",
        "--format=%G?%an %ae %cn %s%n%b",
        branch,
    )


@pytest.mark.parametrize("by", ["file", "variable", "variable that names a file"])
def test_commits_are_signed_with_an_ssh_key(scene: Scene, ssh_key: Path, by: str) -> None:
    variable = {"variable": ssh_key.read_text(), "variable that names a file": str(ssh_key)}
    if by == "file":
        result = scene.run("--signing-key", ssh_key)  # the format is recognized from the key
    else:
        result = scene.run(env={"IMAGE_UPDATE_SIGNING_KEY": variable[by]})
    assert result.code == 0, result.stderr
    assert verified_ssh(scene, ssh_key).startswith("GSigner signer@example.com Signer build: ")
    assert result.json["commits"][0]["commit"] == git(scene.repo, "rev-parse", "main")
    assert result.json["commits"][0]["tree"] == git(scene.repo, "rev-parse", "main^{tree}")


def test_commits_on_the_memory_branch_are_signed(scene: Scene, ssh_key: Path) -> None:
    manifest(scene.apps.parent, application("a", scene.repo, git_branch="main:bump"))
    given = (
        "--applications",
        scene.apps,
        "--allow-protocol",
        "file",
        *WHO,
        "--signing-key",
        ssh_key,
    )
    assert image_update("hold", "a", "--reason", "freeze", *given).code == 0
    (memory,) = git(
        scene.repo, "for-each-ref", "--format=%(refname:short)", "refs/heads/image-update-memory/"
    ).split()
    assert verified_ssh(scene, ssh_key, memory).startswith(
        "GSigner signer@example.com Signer Remember"
    )


@pytest.mark.measured
def test_a_key_that_others_may_read_is_copied(scene: Scene, ssh_key: Path) -> None:
    ssh_key.chmod(0o644)
    assert scene.run("--signing-format", "ssh", "--signing-key", ssh_key).code == 0
    assert verified_ssh(scene, ssh_key).startswith("G")


@pytest.mark.parametrize("by", ["file", "variable"])
def test_commits_are_signed_with_an_openpgp_key(
    scene: Scene, pgp_key: str, keyring: dict[str, str], tmp_path: Path, by: str
) -> None:
    (tmp_path / "key.asc").write_text(pgp_key)
    given = ("--signing-key", tmp_path / "key.asc") if by == "file" else ()
    result = scene.run(*given, env={} if given else {"IMAGE_UPDATE_SIGNING_KEY": pgp_key})
    assert result.code == 0, result.stderr
    assert tool("git", "-C", str(scene.repo), "verify-commit", "main", env=keyring) == ""


def test_commits_are_signed_with_a_key_in_the_users_keyring(
    scene: Scene, keyring: dict[str, str]
) -> None:
    result = scene.run("--signing-key", "signer@example.com", env=keyring)
    assert result.code == 0, result.stderr
    assert tool("git", "-C", str(scene.repo), "verify-commit", "main", env=keyring) == ""


def test_signing_does_not_change_the_commit_message(scene: Scene, ssh_key: Path) -> None:
    scene.run()
    plain = git(scene.repo, "log", "-1", "--format=%B", "main")
    git(scene.repo, "update-ref", "refs/heads/main", "main^")
    scene.run("--signing-format", "ssh", "--signing-key", ssh_key)
    assert git(scene.repo, "log", "-1", "--format=%B", "main") == plain


@pytest.mark.measured
def test_no_gpg_agent_keeps_running(scene: Scene, pgp_key: str) -> None:
    scene.run(env={"IMAGE_UPDATE_SIGNING_KEY": pgp_key})

    def agents() -> bytes:
        return subprocess.run(
            ["pgrep", "-f", f"gpg-agent.*{scene.scratch}"], capture_output=True, check=False
        ).stdout

    wait_until(lambda: not agents())


def test_a_key_with_a_passphrase_is_refused(scene: Scene, ssh_key: Path) -> None:
    tool("ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(ssh_key))
    result = scene.run("--signing-format", "ssh", "--signing-key", ssh_key)
    assert (result.code, git(scene.repo, "rev-list", "--count", "main")) == (4, "1")
    assert "without a passphrase" in result.stderr


@pytest.mark.parametrize(
    ("text", "form", "words"),
    [
        ("/does/not/exist", "ssh", "cannot read"),
        ("keys/not-there", "", "cannot read 'keys/not-there'"),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n-----END OPENSSH PRIVATE KEY-----",
            "openpgp",
            "the key's format is ssh, not openpgp; omit --signing-format",
        ),
        (
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\nx\n",
            "ssh",
            "the key's format is openpgp, not ssh",
        ),
        (
            "-----BEGIN CERTIFICATE-----\nx\n",
            "",
            "not a private key; pass a private key without a passphrase",
        ),
        ("ssh-ed25519 AAAA\n", "ssh", "without a passphrase"),
    ],
)
def test_invalid_signing_keys_cause_usage_errors(text: str, form: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        key_of(Secret(text), form)
    shown = f"{caught.value}; {caught.value.hint}"
    assert words in shown
    assert "AAAA" not in shown


def test_a_broken_signing_key_is_not_shown(scene: Scene, ssh_key: Path) -> None:
    broken = ssh_key.read_text().replace("b3BlbnNzaC1rZXktdjE", "b3BlbnNzaC1rZXktdjI")
    result = scene.run("--signing-format", "ssh", env={"IMAGE_UPDATE_SIGNING_KEY": broken})
    assert result.code == 4
    assert broken.splitlines()[1] not in result.stdout + result.stderr


def test_planning_requires_no_signature(scene: Scene, ssh_key: Path) -> None:
    args = ["plan", *arguments(scene.apps, "--signing-format", "ssh", "--signing-key", ssh_key)[1:]]
    running = start(args, env={"TMPDIR": str(scene.scratch)})
    running.communicate()
    assert running.returncode == 0
    assert git(scene.repo, "rev-list", "--count", "main") == "1"


def test_the_error_for_an_unknown_key_id_mentions_a_missing_file(
    scene: Scene, keyring: dict[str, str]
) -> None:
    done = scene.run("--signing-key", "signing_ed25519", env=keyring)
    (failure,) = [one for one in done.json["decisions"] if one["verdict"] == "error"]
    assert done.code == 4
    assert failure["because"].startswith(
        "cannot sign the commit with the key 'signing_ed25519' from the GnuPG keyring ("
    )
    assert (
        "'signing_ed25519' is not a file either; pass a private key without a passphrase"
        in done.stderr
    )


MEMORY = "refs/heads/image-update-memory/"


class HeadScene(Scene):
    """The same scene with a head branch and its waiting list on a memory branch."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.apps = manifest(folder, application("a", self.repo, git_branch="main:bump"))

    @property
    def memory(self) -> str:
        """The name of the memory branch."""
        (name,) = git(self.repo, "for-each-ref", "--format=%(refname)", MEMORY).split()
        return name

    def forge(self) -> None:
        """Recreate the memory branch's commit, like an attacker who may push to the branch."""
        tree = git(self.repo, "rev-parse", f"{self.memory}^{{tree}}")
        message = git(self.repo, "log", "-1", "--format=%B", self.memory)
        who = ("-c", "user.name=Eve", "-c", "user.email=eve@example.com")
        made = git(self.repo, *who, "commit-tree", tree, "-m", message)
        git(self.repo, "update-ref", self.memory, made)


UNSIGNED = "no known key has signed it, so only its holds count; left out: .image-update/waiting/"


@pytest.mark.parametrize("form", ["ssh", "openpgp"])
def test_a_memory_branch_signed_with_our_key_is_trusted(
    tmp_path: Path, ssh_key: Path, pgp_key: str, form: str
) -> None:
    scene = HeadScene(tmp_path)
    env = {"IMAGE_UPDATE_SIGNING_KEY": ssh_key.read_text() if form == "ssh" else pgp_key}
    assert scene.run(env=env).code == 0
    again = scene.run(env=env)
    assert "no known key" not in again.stderr
    assert [row["outcome"] for row in again.json["waiting"]] == ["waits"]
    scene.forge()
    newer = arguments(scene.apps, image=f"{WEB}:1.2.0")
    assert UNSIGNED in image_update(*newer, env=env).stderr
    assert "no known key" not in image_update(*newer, env=env).stderr  # this run signed the commit


def test_a_memory_branch_signed_with_a_configured_key_is_trusted_by_every_run(
    tmp_path: Path, ssh_key: Path, pgp_key: str, keyring: dict[str, str]
) -> None:
    """The run that reads the memory branch may sign with another key, or not at all."""
    scene = HeadScene(tmp_path)
    public = tool("gpg", "--batch", "--armor", "--export", env=keyring)
    of_ssh = ssh_key.with_suffix(".pub").read_text()
    config = "version: 1\nmemorySigners: [keys/ci.asc, keys/ci.pub]\n"
    files = {".image-update/config": config, "keys/ci.asc": public, "keys/ci.pub": of_ssh}
    commit(scene.repo, files)
    for key in (ssh_key.read_text(), pgp_key):
        assert scene.run(env={"IMAGE_UPDATE_SIGNING_KEY": key}).code == 0
        assert "no known key" not in scene.run().stderr
    commit(scene.repo, {"keys/ci.asc": of_ssh, "keys/ci.pub": of_ssh})
    scene.forge()
    status = image_update("status", "--applications", scene.apps, "--allow-protocol", "file")
    assert UNSIGNED in status.stderr
    commit(scene.repo, {".image-update/config": config.replace("ci.pub", "none.pub")})
    assert "keys/none.pub: there is no such file" in scene.run().stderr
