"""Pure code for texts that OpenSSH reads: private keys and known hosts."""

from __future__ import annotations

import base64

from task.errors import UsageError

_BEGIN, _END = "-----BEGIN ", "PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\x00"
_KINDS = ("ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-")


def is_private_key(text: str) -> bool:
    """Tell whether the text has a private key in a format that OpenSSH reads."""
    return any(line.startswith(_BEGIN) and line.rstrip().endswith(_END) for line in text.splitlines())


def has_passphrase(text: str) -> bool:
    """Tell whether a passphrase protects the private key."""
    if "BEGIN ENCRYPTED PRIVATE KEY" in text or "Proc-Type: 4,ENCRYPTED" in text:
        return True
    if "BEGIN OPENSSH PRIVATE KEY" not in text:
        return False
    body = "".join(line.strip() for line in text.splitlines() if not line.startswith("-----"))
    try:
        raw = base64.b64decode(body)
    except ValueError:
        return False  # ssh will report the problem
    size = int.from_bytes(raw[len(_MAGIC) : len(_MAGIC) + 4])
    return raw.startswith(_MAGIC) and raw[len(_MAGIC) + 4 :][:size] != b"none"


def tidy_key(text: str, what: str) -> str:
    """Return the key in the form that ssh needs. Secrets often lack the last newline, or have other line ends.

    Raises `UsageError` for anything but a private key without a passphrase.
    """
    lines = text.replace("\r", "").replace("\\n", "\n").strip()
    if not is_private_key(lines):
        raise UsageError(f"{what} is not a private key", hint="give the private half, as ssh-keygen writes it")
    if has_passphrase(lines):
        raise UsageError(
            f"{what} has a passphrase, which a pipeline cannot type",
            hint="make a key without one for this job: ssh-keygen -t ed25519 -N ''",
        )
    return f"{lines}\n"


def host_key(line: str) -> str:
    """Return one line of known_hosts. Raises `UsageError`."""
    words = line.split()
    fields = words[1:] if words[:1] in (["@cert-authority"], ["@revoked"]) else words
    if len(fields) < 3 or not fields[1].startswith(_KINDS):  # host, kind, key
        raise UsageError(
            f"--ssh-host-key: {line!r} is not a line of known_hosts",
            hint="write it as ssh-keyscan prints it: git.example.com ssh-ed25519 AAAA… ([host]:port for other ports)",
        )
    return " ".join(words)
