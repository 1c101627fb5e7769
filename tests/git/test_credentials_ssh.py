"""SSH keys, known hosts, and the ssh command built from them."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support import needs

from task.errors import UsageError
from task.git.credentials import Access, Credentials, access_of
from task.git.ssh import collect, has_passphrase, host_key, is_private_key, tidy_key
from task.secret import Secret
from task.settings import AccessOptions

HOST_KEY = "git.example.com ssh-ed25519 AAAA"


def key(folder: Path, *options: str, words: str = "") -> str:
    needs("ssh-keygen")
    path = folder / f"key-{os.urandom(4).hex()}"
    subprocess.run(["ssh-keygen", "-q", "-N", words, "-f", path, *options], check=True)
    return path.read_text()


KINDS = [
    ("-t", "ed25519"),
    ("-t", "ecdsa"),
    ("-t", "rsa", "-m", "PEM"),
    ("-t", "ecdsa", "-m", "PKCS8"),
]


@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
@pytest.mark.parametrize("words", ["", "a passphrase"])
def test_a_passphrase_is_detected_in_every_key_format(
    tmp_path: Path, kind: tuple[str, ...], words: str
) -> None:
    text = key(tmp_path, *kind, words=words)
    assert is_private_key(text)
    assert has_passphrase(text) is bool(words)


def test_a_key_with_a_passphrase_is_rejected_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="passphrase") as caught:
        tidy_key(key(tmp_path, "-t", "ed25519", words="secret words"), "the key")
    assert "ssh-keygen" in caught.value.hint


SPOILT: dict[str, Callable[[str], str]] = {
    "no last newline": str.strip,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "space around": lambda text: f"\n {text}\n",
    "newlines as letters": lambda text: text.replace("\n", "\\n"),
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_key_with_damaged_whitespace_is_repaired(tmp_path: Path, spoil: str) -> None:
    text = key(tmp_path, "-t", "ed25519")
    path = tmp_path / "mended"
    path.write_text(tidy_key(SPOILT[spoil](text), "the key"))
    path.chmod(0o600)
    assert subprocess.run(["ssh-keygen", "-y", "-f", path], check=True, capture_output=True).stdout


@pytest.mark.parametrize(
    "text", ["", "ssh-ed25519 AAAA public", "PuTTY-User-Key-File-3: ssh-ed25519"]
)
def test_text_that_is_not_a_private_key_is_rejected(text: str) -> None:
    assert not is_private_key(text)
    with pytest.raises(UsageError, match="not a private key"):
        tidy_key(text, "the key")


@pytest.mark.parametrize(
    "line", [HOST_KEY, f"@cert-authority *.{HOST_KEY}", f"[h]:22,{HOST_KEY} comment"]
)
def test_valid_host_key_lines_are_accepted(line: str) -> None:
    assert host_key(line) == line


@pytest.mark.parametrize(
    "line", ["", "ssh-ed25519 AAAA", "git.example.com", "git.example.com SHA256:abc x", "# x y z"]
)
def test_invalid_host_key_lines_are_rejected(line: str) -> None:
    with pytest.raises(UsageError, match="--ssh-host-key"):
        host_key(line)


def config(folder: Path, given: AccessOptions, key: str = "", home: str = "") -> str:
    made = Access(Credentials(ssh=collect(given, Secret(key), home)), {"TMPDIR": str(folder)})
    command, asked = made.ssh()
    (private,) = [path for path in folder.iterdir() if path.name.startswith("image-update-")]
    text = (private / "config").read_text().replace(str(private), "HERE")
    assert asked
    assert command.startswith(f"ssh -F {private}/config -o BatchMode=yes")
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in private.iterdir())
    made.close()
    assert not private.exists()
    return text


def test_the_given_ssh_config_precedes_our_defaults(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    ws.mkdir()
    (ws / "config").write_text(
        f"Host h\n  IdentityFile ~/.ssh/a\n  CertificateFile {ws}/b-cert.pub\n"
    )
    (ws / "known_hosts").write_text("h ssh-ed25519 BBBB")
    (ws / "a").write_text(key(tmp_path, "-t", "ed25519"))
    assert config(tmp_path, AccessOptions(ssh_directory=str(ws), ssh_host_key=(HOST_KEY,))).split("\n") == [
        'UserKnownHostsFile "HERE/known_hosts"', "IdentitiesOnly yes",
        "Host h", "  IdentityFile HERE/a", "  CertificateFile HERE/b-cert.pub", "",
        "Host *", "StrictHostKeyChecking yes", 'IdentityFile "HERE/a"', "",
    ]  # fmt: skip


def test_a_separately_specified_key_is_the_only_key_used(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_ed25519").write_text(key(tmp_path, "-t", "ed25519"))
    text = config(tmp_path, AccessOptions(), key(tmp_path, "-t", "ed25519"), str(home))
    assert [line for line in text.split("\n") if "Identit" in line] == [
        "IdentitiesOnly yes",
        'IdentityFile "HERE/image-update-key"',
    ]


def test_known_hosts_from_the_home_folder_are_used_with_a_separate_key(tmp_path: Path) -> None:
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (tmp_path / "home" / ".ssh" / "known_hosts").write_text("h ssh-ed25519 BBBB")
    found = collect(AccessOptions(ssh_host_key=(HOST_KEY,)), Secret(""), str(tmp_path / "home"))
    assert found.files["known_hosts"] == f"h ssh-ed25519 BBBB\n{HOST_KEY}\n"
    (tmp_path / "only").write_text("only ssh-ed25519 CCCC\n")
    found = collect(
        AccessOptions(ssh_known_hosts_file=str(tmp_path / "only")),
        Secret(""),
        str(tmp_path / "home"),
    )
    assert found.files["known_hosts"] == "only ssh-ed25519 CCCC\n"


def test_a_key_in_two_places_causes_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="both"):
        collect(AccessOptions(ssh_key_file=str(tmp_path)), Secret("x"), "")


def test_an_unreadable_ssh_directory_causes_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root can read every folder, so the system error is simulated."""

    def denied(_folder: str) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", denied)
    with pytest.raises(UsageError, match=r"--ssh-directory: cannot read .*: Permission denied"):
        access_of(AccessOptions(ssh_directory=str(tmp_path)), {})
