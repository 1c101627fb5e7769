"""Prepares ssh: copies the configured keys and known hosts to a folder that only this user can
read. Copies are needed because ssh rejects keys that others may read, which is common for mounted
secrets, and because ssh looks for its files in the passwd entry's home, regardless of HOME.
"""

from __future__ import annotations

import base64
import os
import pwd
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock

from task import shutdown
from task.errors import UnreachableError, UsageError
from task.files import read_text, remove_folder, temporary_folder, write_private
from task.secret import Secret
from task.settings import AccessOptions

OPTIONS = "-o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
PLAIN = f"ssh {OPTIONS}"
_LARGEST = 1_000_000  # bytes; keys, known hosts, and configuration are much smaller
_FOLDER_PLACEHOLDER = "\x00"  # placeholder for the private folder in a configuration
_KEY = "image-update-key"
_HOMES = ("~/.ssh/", "%d/.ssh/", "${HOME}/.ssh/")


@dataclass(frozen=True)
class SshFiles:
    """The contents of the files for ssh. They are checked before any server is contacted."""

    files: dict[str, str] = field(default_factory=dict)  # filename → text
    keys: tuple[str, ...] = ()  # filenames of private keys, in the order to try them
    only_keys: bool = False  # do not use an agent's keys
    known_hosts: bool = False


def collect(options: AccessOptions, key: Secret, home: str) -> SshFiles:
    """Read the files and keys that the options specify, and return the files for ssh.

    `key` is the private key from a variable. `home` is the user's home folder, whose `.ssh` is read
    if `--ssh-directory` is not set. Raises `UsageError` if a file or key cannot be read or used.
    """
    if key and options.ssh_key_file:
        raise UsageError(
            "--ssh-key-file and IMAGE_UPDATE_SSH_KEY are both set",
            hint="set only one of them",
        )
    files, keys = _files_and_keys(options.ssh_directory, home)
    if key:
        files[_KEY] = tidy_key(key.reveal(), "IMAGE_UPDATE_SSH_KEY")
    elif options.ssh_key_file:
        text = read_given(options.ssh_key_file, "--ssh-key-file")
        files[_KEY] = tidy_key(text, f"--ssh-key-file: {options.ssh_key_file!r}")
    if _KEY in files:
        keys = [_KEY]

    if options.ssh_known_hosts_file:
        files["known_hosts"] = read_given(options.ssh_known_hosts_file, "--ssh-known-hosts-file")
    lines_of_file = files.get("known_hosts", "").rstrip()
    lines_of_option = "".join(f"{host_key(line)}\n" for line in options.ssh_host_key)
    known_hosts = f"{lines_of_file}\n{lines_of_option}".lstrip()
    if known_hosts:
        files["known_hosts"] = known_hosts

    # Keys from options are used instead of an agent's keys.
    only_keys = bool(options.ssh_directory or options.ssh_key_file or key)
    return SshFiles(files, tuple(keys), only_keys=only_keys, known_hosts=bool(known_hosts))


def _files_and_keys(directory: str, home: str) -> tuple[dict[str, str], list[str]]:
    """Return the files in `--ssh-directory` (`directory`), else in `~/.ssh`, by name, and the names
    of the private keys among them.

    Raises `UsageError` if a file or key cannot be read or used.
    """
    folder = directory
    if not directory and home:
        folder = os.path.join(home, ".ssh")
    option = "--ssh-directory" if directory else folder  # for messages
    files: dict[str, str] = {}
    for name in _readable_names(folder, directory):
        files[name] = read_given(os.path.join(folder, name), option)

    keys = [name for name, text in files.items() if is_private_key(text)]
    if directory:
        for name in keys:
            files[name] = tidy_key(files[name], f"--ssh-directory: {name}")
    else:  # the user's own keys may have a passphrase, but such keys cannot be used
        keys = [name for name in keys if not has_passphrase(files[name])]

    if "config" in files:
        # the configuration's paths must point to the copies, whose folder is not known yet
        for prefix in (*_HOMES, f"{folder.rstrip('/')}/"):
            files["config"] = files["config"].replace(prefix, f"{_FOLDER_PLACEHOLDER}/")
    return files, keys


def _readable_names(folder: str, option: str) -> list[str]:
    """Return the names of the files in a folder. Skip large files, sockets, and symlinks to
    directories (such as `..data` in a mounted secret).

    `option` is the value of `--ssh-directory`. If `option` is "", the folder is the user's own, and
    unreadable files in it are skipped.
    """
    try:
        names = sorted(os.listdir(folder)) if folder else []
    except OSError as error:
        if not option:
            return []
        hint = "specify a folder that contains a private key"
        raise UsageError(
            f"--ssh-directory: cannot read {folder!r}: {error.strerror}",
            hint=hint,
        ) from None
    files = []
    for name in names:
        path = os.path.join(folder, name)
        is_file = os.path.isfile(path) and not name.startswith("..")
        if not is_file or os.path.getsize(path) > _LARGEST:
            continue
        may_skip_unreadable = not option
        if may_skip_unreadable and not os.access(path, os.R_OK):
            continue
        files.append(name)
    return files


def write(ssh_files: SshFiles, folder: str) -> str:
    """Write the files to a private folder, and return the ssh command that uses them."""
    # ssh uses the first value that it finds: in `first_lines`, then in the given configuration,
    # then in `last_lines`. For `IdentityFile`, it uses all values.
    first_lines = []
    if ssh_files.known_hosts:
        first_lines.append(f'UserKnownHostsFile "{folder}/known_hosts"')
    if ssh_files.only_keys:
        first_lines.append("IdentitiesOnly yes")
    last_lines = [
        "Host *",
        "StrictHostKeyChecking yes",
        *(f'IdentityFile "{folder}/{name}"' for name in ssh_files.keys),
    ]
    given_config = ssh_files.files.get("config", "").replace(_FOLDER_PLACEHOLDER, folder)
    config = "\n".join([*first_lines, given_config, *last_lines, ""])
    for name, text in {**ssh_files.files, "config": config}.items():
        write_private(os.path.join(folder, name), text)
    return f"ssh -F {shlex.quote(f'{folder}/config')} {OPTIONS}"


def write_passwd_entry(folder: str, home: str) -> dict[str, str]:
    """Write a passwd entry for this user, and return the environment variables that make ssh use
    this entry. Without an entry, ssh does not run, and Kubernetes may choose a user id that has
    none.

    The variables load libnss_wrapper, which substitutes our file for /etc/passwd, because that file
    cannot be changed in a pod.
    """
    user_id = os.getuid()
    group_id = os.getgid()
    home_field = home.replace(":", "") or "/"
    passwd = f"image-update:x:{user_id}:{group_id}:image-update:{home_field}:/bin/sh\n"
    write_private(os.path.join(folder, "passwd"), passwd)
    write_private(os.path.join(folder, "group"), f"image-update:x:{group_id}:\n")
    return {
        "LD_PRELOAD": "libnss_wrapper.so",
        "NSS_WRAPPER_PASSWD": f"{folder}/passwd",
        "NSS_WRAPPER_GROUP": f"{folder}/group",
    }


def passwd_home() -> str | None:
    """Return the home folder from this user's passwd entry, or None if the user has no entry."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None


def needs_own_files(home: str) -> bool:
    """Return whether HOME contains a `.ssh` folder that ssh would not find, because ssh looks in
    the passwd entry's home folder. Tekton's creds-init creates such a folder.
    """
    if not home:
        return False
    return os.path.isdir(os.path.join(home, ".ssh")) and passwd_home() != home


def read_given(path: str, option: str, most: int = _LARGEST, errors: str = "replace") -> str:
    """Return the content of a file that an option specifies. Raises `UsageError` if the file cannot
    be read, or is not text.
    """
    try:
        return read_text(path, most, errors)
    except OSError as error:
        raise UsageError(
            f"{option}: cannot read {path!r}: {error.strerror}",
            hint="specify a readable file",
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"{option}: {path!r} is not text", hint="specify a text file") from None


_IDLE_SECONDS = 30  # seconds after which an idle connection closes
_SAFE_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-")


class SshSharing:
    """Shares one connection to each server among all git commands of a run, using OpenSSH
    connection sharing with sockets in a private folder.

    A handshake takes about six round trips, and a run connects five times. Several threads may
    share the connections.
    """

    def __init__(self, parent: str, environ: Mapping[str, str]) -> None:
        self._parent = parent
        self._environ = environ
        self._folder = ""
        self._connections: list[tuple[str, str]] = []  # (ssh command, server)
        self._lock = Lock()

    def options(self, command: str, server: str) -> str:
        """Return the ssh options that make commands for the same server share a connection, or ""
        if sharing is not possible.
        """
        with shutdown.shield(), self._lock:
            if not self._folder:
                self._create_folder()
            if not self._folder:
                return ""
            connection = (command, server)
            if connection not in self._connections:
                self._connections.append(connection)
            number = self._connections.index(connection)
            path = f"{self._folder}/{number}"
        return f" -o ControlMaster=auto -o ControlPersist={_IDLE_SECONDS} -o ControlPath={path}"

    def _create_folder(self) -> None:
        """Create the folder for the connections' sockets. If this fails, connections are not
        shared.
        """
        with suppress(UnreachableError):
            self._folder = temporary_folder(self._parent, sockets=True)
        if not _SAFE_CHARACTERS.issuperset(self._folder):  # a shell will parse the command
            self.close()

    def end(self) -> None:
        """Close the connections, including any dead ones. The next command opens new ones."""
        with suppress(OSError):
            if self._folder:
                for name in os.listdir(self._folder):
                    _stop_sharing(f"{self._folder}/{name}", self._environ)

    def close(self) -> None:
        """Close the connections, and remove their folder."""
        self.end()
        if self._folder:
            remove_folder(self._folder)
            self._folder = ""


def _stop_sharing(socket: str, environ: Mapping[str, str]) -> None:
    """Make the ssh process that listens on this socket close its shared connection and exit."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        # ssh requires a hostname ("any" here), but does not connect to it
        argv = ["ssh", "-F", "none", "-O", "exit", "-o", f"ControlPath={socket}", "any"]
        stdio = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
        with suppress(OSError):
            pid = os.posix_spawnp("ssh", argv, environ, file_actions=stdio, setsigmask=())
            os.waitpid(pid, 0)
    finally:
        os.close(null)


_BEGIN = "-----BEGIN "
_END = "PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\x00"
_KINDS = ("ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-")


def is_private_key(text: str) -> bool:
    """Return whether the value is a private key in a format that OpenSSH reads."""
    return any(
        line.startswith(_BEGIN) and line.rstrip().endswith(_END) for line in text.splitlines()
    )


def has_passphrase(text: str) -> bool:
    """Return whether the private key is protected by a passphrase."""
    if "BEGIN ENCRYPTED PRIVATE KEY" in text or "Proc-Type: 4,ENCRYPTED" in text:
        return True
    if "BEGIN OPENSSH PRIVATE KEY" not in text:
        return False
    body = "".join(line.strip() for line in text.splitlines() if not line.startswith("-----"))
    try:
        raw = base64.b64decode(body)
    except ValueError:
        return False  # ssh will report the problem
    # The magic bytes are followed by the cipher's name: a 4-byte length, and then the text.
    after_magic = raw.removeprefix(_MAGIC)
    length = int.from_bytes(after_magic[:4])
    cipher = after_magic[4 : 4 + length]
    return raw.startswith(_MAGIC) and cipher != b"none"


def tidy_key(text: str, what: str) -> str:
    """Return the text of a private key in the form that ssh needs. In secrets, keys often lack the
    final newline, or have different line endings.

    `what` names the key in messages. Raises `UsageError` unless it is a private key without a
    passphrase.
    """
    lines = text.replace("\r", "").replace("\\n", "\n").strip()
    if not is_private_key(lines):
        raise UsageError(
            f"{what} is not a private key",
            hint="use the private key as generated by ssh-keygen",
        )
    if has_passphrase(lines):
        hint = "create a key without a passphrase for this job: ssh-keygen -t ed25519 -N ''"
        raise UsageError(f"{what} has a passphrase, which a pipeline cannot enter", hint=hint)
    return f"{lines}\n"


def host_key(line: str) -> str:
    """Return a known_hosts line, such as `git.example.com ssh-ed25519 AAAA…`, with single spaces.
    Raises `UsageError` if it is not such a line.
    """
    words = line.split()
    has_marker = words[:1] in (["@cert-authority"], ["@revoked"])
    fields = words[1:] if has_marker else words  # host, kind, key
    if len(fields) < 3 or not fields[1].startswith(_KINDS):
        hint = (
            "use the format that ssh-keyscan prints: git.example.com ssh-ed25519 AAAA… ([host]:port"
            " for other ports)"
        )
        raise UsageError(f"--ssh-host-key: {line!r} is not a known_hosts line", hint=hint)
    return " ".join(words)
