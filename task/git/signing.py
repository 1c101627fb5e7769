"""Signs commits with the key from the command line: OpenPGP with gpg, SSH with ssh-keygen.

During the run, a key that is passed in is kept in a private folder; the user's own keyring is not
modified.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock

from task.errors import CredentialsError, UsageError
from task.files import read_text, remove_folder, temporary_folder, write_private
from task.git.command import Git
from task.git.errors import GitFailed, quoted
from task.model import Person
from task.secret import Secret

_SSH_KEY = re.compile(r"(ssh|ecdsa|sk)-[\w@.-]+ [\w+/=]+")
_PGP_KEY = re.compile("BEGIN PGP PUBLIC KEY BLOCK")
# Fields in the output of gpg's `--with-colons` (GnuPG's doc/DETAILS), counted from 0.
_KEY_ID_FIELD = 4  # in "sec" and "ssb" lines
_FINGERPRINT_FIELD = 9  # in "fpr" lines
_NEEDED_KEY = "pass a private key without a passphrase in --signing-key or IMAGE_UPDATE_SIGNING_KEY"


@dataclass(frozen=True)
class Key:
    """A signing key, or, for OpenPGP, the id of a key in the user's keyring."""

    text: Secret  # "" if this is an id
    name: str  # the key's id in the keyring, or ""
    form: str  # "openpgp", "ssh"


def key_of(value: Secret, form: str = "") -> Key:
    """Return the key that an option's value specifies: the key itself, a file, or an id in the
    keyring.

    `form` is "openpgp" or "ssh"; "" means that the key's format is detected. Raises `UsageError` if
    the value cannot be a key, or is a key in a different format.
    """
    text = value.reveal()
    is_key_itself = "\n" in text or text.startswith("-----BEGIN")
    if not is_key_itself:  # a file, or an id in the keyring
        looks_like_path = "/" in text or text.startswith(".")
        may_be_id = form != "ssh" and not looks_like_path
        if may_be_id and not os.path.exists(text):
            return Key(text=Secret(""), name=text, form="openpgp")
        text = _text_of_key_file(text)

    if "PGP PRIVATE KEY BLOCK" in text:
        detected_form = "openpgp"
    elif "PRIVATE KEY-----" in text:
        detected_form = "ssh"
    else:
        raise UsageError("--signing-key: not a private key", hint=_NEEDED_KEY)
    if form not in ("", detected_form):
        hint = "omit --signing-format: the format is detected from the key"
        raise UsageError(
            f"--signing-key: the key's format is {detected_form}, not {form}",
            hint=hint,
        )
    tidy_text = text.replace("\r\n", "\n").rstrip("\n") + "\n"
    return Key(text=Secret(tidy_text), name="", form=detected_form)


def _text_of_key_file(path: str) -> str:
    """Return the text of a key file. Raises `UsageError` if the file cannot be read as text."""
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        not_text = "not text; export the key with --armor"
        why = error.strerror if isinstance(error, OSError) else not_text
        raise UsageError(
            f"--signing-key: cannot read {path!r}: {why}",
            hint="specify a readable file",
        ) from None


class Signer:
    """Creates signed commits. Several threads may share a signer; `close` removes the key."""

    def __init__(self, git: Git, key: Key) -> None:
        self._git = git
        self._key = key
        self._folder = ""
        # Git's `user.signingKey`: an id in the user's keyring, the fingerprint of the imported
        # OpenPGP key, or the path of the SSH key. It is "" until `_prepare_key` is called.
        self._signing_key = ""
        self._lock = Lock()

    def close(self) -> None:
        """Remove the key's copies. A gpg agent exits when its folder is removed."""
        if self._folder:
            remove_folder(self._folder)
            self._folder = ""

    def commit(
        self,
        git_dir: str,
        tree: str,
        parent: str,
        message: str,
        who: Person,
    ) -> str:
        """Create a signed commit of this tree, and return its id.

        `parent` is a commit id, or "" for none. `who` is both the author and the committer. Raises
        `CredentialsError` if the key cannot be used.
        """
        with self._lock:  # the agent handles one request at a time; the key is prepared once
            self._prepare_key()
            name = who.name or who.email
            env = {
                "GIT_AUTHOR_NAME": name,
                "GIT_AUTHOR_EMAIL": who.email,
                "GIT_COMMITTER_NAME": name,
                "GIT_COMMITTER_EMAIL": who.email,
                **self._keyring_variable(),
            }
            argv = [
                *("-c", f"gpg.format={self._key.form}"),
                *("-c", f"user.signingKey={self._signing_key}"),
                *("-c", "gpg.program=gpg"),
                *("-c", "gpg.ssh.program=ssh-keygen"),
                *("-c", "i18n.commitEncoding=UTF-8"),
                *("commit-tree", "-S", tree),
            ]
            if parent:
                argv += ["-p", parent]
            try:
                result = self._git.run(*argv, git_dir=git_dir, stdin=message, env=env)
            except GitFailed as error:
                raise _unusable_key(error, self._key.name) from error
            return result.out.decode().strip()

    def key_ids(self) -> tuple[str, ...]:
        """Return the ids of the OpenPGP key and its subkeys, one of which signs. Return () for an
        SSH key.
        """
        if self._key.form == "ssh":
            return ()
        with self._lock:
            self._prepare_key()
            lines = self._secret_key_lines(self._signing_key)
            key_lines = [line for line in lines if line.startswith(("sec:", "ssb:"))]
            return tuple(line.split(":")[_KEY_ID_FIELD] for line in key_lines)

    def public_key(self) -> str:
        """Return the public key that verifies the signatures."""
        with self._lock:
            self._prepare_key()
            program = "gpg"
            argv = ["--batch", "--armor", "--export", self._signing_key]
            if self._key.form == "ssh":
                program = "ssh-keygen"
                argv = ["-y", "-f", self._signing_key]
            try:
                result = self._git.run(*argv, program=program, env=self._keyring_variable())
            except GitFailed as error:
                raise _unusable_key(error, self._key.name) from error
            return result.out.decode()

    def _secret_key_lines(self, *name: str) -> list[str]:
        """Return gpg's output lines for the secret keys with this name, or for all secret keys."""
        argv = ("--batch", "--with-colons", "--list-secret-keys", *name)
        try:
            result = self._git.run(*argv, program="gpg", env=self._keyring_variable())
        except GitFailed as error:
            raise _unusable_key(error, self._key.name) from error
        return result.out.decode().splitlines()

    def _keyring_variable(self) -> dict[str, str]:
        """Return the environment variable that selects our own keyring. Return {} for the user's
        keyring or an SSH key.
        """
        return {"GNUPGHOME": self._folder} if self._key.form == "openpgp" and self._folder else {}

    def _prepare_key(self) -> None:
        """Set `_signing_key`. If the key is not in the user's keyring, first copy the key to a
        private folder.
        """
        if self._signing_key:
            return
        if self._key.name:
            self._signing_key = self._key.name
            return
        self._folder = temporary_folder(self._git.temporary, sockets=True)
        if self._key.form == "ssh":
            path = f"{self._folder}/key"
            write_private(path, self._key.text.reveal())
            self._signing_key = path
            return
        try:
            self._git.run(
                "--batch",
                "--quiet",
                "--import",
                program="gpg",
                stdin=self._key.text.reveal(),
                env=self._keyring_variable(),
            )
        except GitFailed as error:
            raise _unusable_key(error) from error
        lines = [line for line in self._secret_key_lines() if line.startswith("fpr:")]
        if not lines:
            raise CredentialsError("the signing key has no secret part", hint=_NEEDED_KEY)
        # gpg lists the primary key before its subkeys.
        self._signing_key = lines[0].split(":")[_FINGERPRINT_FIELD]


def is_signed(git: Git, git_dir: str, commit: str, keys: Iterable[str]) -> bool:
    """Return whether a commit is signed with one of these public keys: OpenPGP in ASCII, or SSH.

    Git verifies the commit with a temporary keyring and a file of allowed signers, which contain
    only these keys.
    """
    key_texts = list(keys)
    folder = temporary_folder(git.temporary, sockets=True)
    env = {"GNUPGHOME": folder}
    try:
        lines = "\n".join(key_texts).splitlines()
        ssh_keys = [line for line in lines if _SSH_KEY.match(line)]
        allowed_signers = f"{folder}/allowed"
        write_private(allowed_signers, "".join(f'* namespaces="git" {key}\n' for key in ssh_keys))

        # gpg trusts every key in this keyring, because it contains only the given keys.
        write_private(f"{folder}/gpg.conf", "trust-model always\n")
        for key_text in key_texts:
            if _PGP_KEY.search(key_text):
                argv = ("--batch", "--quiet", "--import")
                git.run(*argv, program="gpg", stdin=key_text, env=env)

        git.run(
            *("-c", "gpg.program=gpg"),
            *("-c", "gpg.ssh.program=ssh-keygen"),
            *("-c", f"gpg.ssh.allowedSignersFile={allowed_signers}"),
            *("-c", "gpg.minTrustLevel=fully"),
            "verify-commit",
            commit,
            git_dir=git_dir,
            env=env,
        )
    except GitFailed:
        return False
    finally:
        remove_folder(folder)
    return True


def _unusable_key(error: GitFailed, key_id: str = "") -> CredentialsError:
    """Return the error for a key that cannot sign. `key_id` is its id in the keyring, or ""."""
    key = "this key"
    hint = _NEEDED_KEY
    if key_id:
        key = f"the key {key_id!r} from the GnuPG keyring"
        # A value that is not a file is treated as a key id, but may actually be a misspelled path.
        hint = f"{key_id!r} is not a file either; {_NEEDED_KEY}"
    return CredentialsError(
        f"cannot sign the commit with {key} ({quoted(error.err)})",
        hint=hint,
    )
