"""The programs that we start: their environment, their limits, and a watch that enforces the
limits.

Git and its local child processes receive a short list of variables. Programs that provide
credentials (credential helpers, `ext:` scripts, exec plugins, ssh and the programs in its
configuration) read variables of their own, which cannot be enumerated. They receive everything
except secrets, which are recognized by name. They do receive cloud credentials (AWS_*, AZURE_*,
GOOGLE_*), because their helpers log in with them, and the secrets that their own configuration or
script mentions.

The bytes and the time that a Git server may use are limited: otherwise, a hostile server could send
data for hours.
"""

from __future__ import annotations

import logging
import os
import re
import resource
import select
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import IO, Any

import sh

from task import shutdown
from task.ci_systems import SYSTEMS
from task.errors import UnreachableError

_OURS = ("IMAGE_UPDATE_", "INPUT_")  # our own options and secrets, and a GitHub action's inputs
# Variables that git, gpg, and ssh-keygen need in order to
# run, and that git and ssh need in order to reach a server.
_BASIC = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|TMPDIR|TZ|TZDIR|LANG|LC_\w+|LOCPATH|LOCALE_ARCHIVE|XDG_\w+"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|DYLD_\w+|NSS_WRAPPER_\w+|NIX_\w+"
    r"|SSH_AUTH_SOCK|SSH_AGENT_PID|SSH_SK_PROVIDER|SSH_SK_HELPER|KRB5\w+|DBUS_SESSION_BUS_ADDRESS"
    r"|GNUPGHOME|GPG_TTY|GPG_AGENT_INFO|PINENTRY_USER_DATA"
    r"|(?i:https?_proxy|all_proxy|no_proxy)"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|CURL_CA_BUNDLE|OPENSSL_CONF|OPENSSL_MODULES"
)
_SECRET = re.compile(
    r"(?:TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL|JWT|NETRC|API_?KEY"
    r"|_KEY|_PAT|_PASS|_PSW|_PWD|_AUTH)S?"
    # TOKENIZER is not a token; the path of a file is not a secret
    r"(?![A-Z])(?!_(?:FILE|PATH|DIR)$)"
    rf"|^(?:ARGOCD_OPTS|{'|'.join(name for system in SYSTEMS for name in system.urls_with_token)})$",
    re.IGNORECASE,
)
_OF_CLOUDS = re.compile(
    r"(?:ALIBABA_CLOUD|AWS|AZURE(?!_DEVOPS)|CLOUDSDK|DIGITALOCEAN|GOOGLE|IBMCLOUD|OCI|OS|SCW)_"
)
_GITHUB = ("GITHUB_TOKEN", "GH_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_ENTERPRISE_TOKEN")
_GITLAB = ("GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN", "CI_JOB_TOKEN")
_AZURE = (
    "SYSTEM_ACCESSTOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_URL",
    "AAD_SERVICE_PRINCIPAL_CLIENT_SECRET",
    "AAD_SERVICE_PRINCIPAL_CLIENT_CERTIFICATE_PASSWORD",
    "AAD_USER_PRINCIPAL_PASSWORD",
)
# Programs that log in with one of these secrets.
_KNOWN = (
    # `!gh auth git-credential`, docker-credential-ghcr-login
    (re.compile(r"\b(?:gh|ghcr)\b"), _GITHUB),
    # `!glab auth git-credential`, `glab cluster agent get-token`
    (re.compile(r"\bglab\b"), _GITLAB),
    # `kubelogin get-token --login azurepipelines`
    (re.compile(r"\bkubelogin\b"), _AZURE),
    # docker-credential-vault-login
    (re.compile(r"\bvault\b"), ("VAULT_TOKEN",)),
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROGRAM = re.compile(r"[\w./+-]+")
_FEW = 20  # how many words of a program's configuration are checked at most
_SCRIPT = 65536  # bytes to read from the start of a script


def basic_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that a program needs to run, or to reach a server."""
    return {variable: value for variable, value in environ.items() if _BASIC.fullmatch(variable)}


def child_environment(
    environ: Mapping[str, str],
    configured: Collection[str] = (),
) -> dict[str, str]:
    """Return the environment for a program that provides credentials: all variables, except our own
    (`IMAGE_UPDATE_…`, `INPUT_…`) and secrets that the program does not need.

    `configured` contains the strings that configure the program, including its name or path. A
    secret is needed if one of these strings, or a script that they refer to, mentions the secret
    (`$GITHUB_TOKEN`).
    """
    needed = _needed_variables(configured, environ.get("PATH", ""))
    env = {}
    for name, value in environ.items():
        is_ours = name.startswith(_OURS)
        is_allowed = name in needed or not is_secret(name)
        if is_allowed and not is_ours:
            env[name] = value
    return env


def is_secret(name: str) -> bool:
    """Return whether a variable, judging by its name, contains a secret other than a cloud
    credential.
    """
    is_exempt = bool(_OF_CLOUDS.match(name) or _BASIC.fullmatch(name))
    return not is_exempt and _SECRET.search(name) is not None


def _needed_variables(configured: Collection[str], path: str) -> frozenset[str]:
    """Return the names of variables that a program may need.

    These are all words that look like a variable name in `configured` (the strings of the program's
    configuration) and in the scripts that those strings refer to, plus the variables of well-known
    programs such as `gh`. `path` is the search path for the scripts.
    """
    needed: set[str] = set()
    for program, variables in _KNOWN:
        if any(program.search(text) for text in configured):
            needed.update(variables)

    words: list[str] = []
    for text in configured:
        words += [text, *_PROGRAM.findall(text)[:_FEW]]
    scripts = [_start_of_script(word, path) for word in words]
    for text in (*configured, *scripts):
        needed.update(_NAME.findall(text))
    return frozenset(needed)


def _start_of_script(word: str, path: str) -> str:
    """Return the start of the script that a word refers to, or "" if the word does not refer to a
    readable script. The word is the script's path, or its name on the search path `path`.
    """
    program = shutil.which(word, path=path)
    if program is None:
        return ""
    try:
        with open(program, "rb") as file:
            is_script = file.read(2) == b"#!"
            if not is_script:
                return ""
            return file.read(_SCRIPT).decode("utf-8", "replace")
    except OSError:  # the script may be executable, but not readable
        return ""


MEMORY = 1 << 30
_LEAST = 64 << 20  # bytes; with less memory, git cannot read an ordinary repository
# seconds for one repository, on top of the time during
# which others may keep pushing to its branches
SPARE = 600.0
_AGAIN = "run it again; a longer --deadline gives the repository more time"


@dataclass(frozen=True)
class Bounds:
    """The resource limits for one repository.

    They are far above what any update needs. Tests lower them.
    """

    messages: int = 64_000_000  # bytes of refs and messages printed by a command
    pack: int = 2 << 30  # bytes of packs in a repository
    # bytes of memory for each git process, which collects refs and error pages before printing them
    memory: int = MEMORY
    seconds: float = 120.0 + SPARE  # for all commands on a repository together

    def limits(self) -> Callable[[], None]:
        """Return a function that a new git process calls first. The function limits the process's
        file size and memory. The kernel enforces these limits.

        A stricter limit on our own process (`ulimit -f`) is kept. The file size limit only works
        for packs because `fetch.unpackLimit=1` keeps each pack in one file.
        """
        wanted = ((resource.RLIMIT_FSIZE, self.pack), (resource.RLIMIT_DATA, self.memory))
        to_lower = []  # (limit, (new soft limit, unchanged hard limit))
        for limit_type, most in wanted:
            soft, hard = resource.getrlimit(limit_type)
            is_stricter = soft != resource.RLIM_INFINITY and soft <= most
            if not is_stricter:
                to_lower.append((limit_type, (most, hard)))

        def limit() -> None:
            """Lower this process's limits."""
            for limit_type, soft_and_hard in to_lower:
                with suppress(OSError, ValueError):  # the system does not support this limit
                    resource.setrlimit(limit_type, soft_and_hard)

        return limit

    def passed(self, messages: str) -> str:
        """Return the limit that git has exceeded, in words, or "" if its messages do not mention
        one.

        `messages` is git's stderr. Lines from the server start with `remote:` and are ignored.
        """
        own_lines = [line for line in messages.splitlines() if not line.startswith("remote:")]
        if any("Out of memory" in line for line in own_lines):
            return f"git would need more than {_size_in_words(self.memory)} of memory"
        soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        # False if our own process already has a stricter limit, in which case git exceeded that one
        is_our_limit = soft == resource.RLIM_INFINITY or soft > self.pack
        if is_our_limit and any("File too large" in line for line in own_lines):
            return self.too_much_pack
        return ""

    @property
    def too_much_pack(self) -> str:
        """The reason why a transfer was stopped: too much pack data."""
        return f"it sent more than {_size_in_words(self.pack)} of pack data"

    @property
    def too_many_messages(self) -> str:
        """The reason why a command was stopped: too much output."""
        return f"it sent more than {_size_in_words(self.messages)} of refs and messages"


def memory_of_step(
    cgroups: Path = Path("/sys/fs/cgroup"),
    own: Path = Path("/proc/self/cgroup"),
) -> int:
    """Return the bytes of memory for each git process: 1 GiB, or half of this CI step's memory
    limit if that is less, but at least 64 MiB.

    Git can report that it ran out of memory. If the whole step reaches its limit first, the kernel
    kills git without a message. The step's limit is that of its control groups, which are listed in
    the file `own`, or of their parents. `cgroups` is the folder where the control groups are
    mounted.
    """
    limits = [2 * MEMORY]  # doubled, because the result is half of the lowest limit
    with suppress(OSError, ValueError):  # fails on systems other than Linux
        for line in own.read_text(encoding="utf-8").splitlines():
            _, controllers, group = line.split(":", 2)
            is_version_2 = not controllers  # on cgroups v2, this list of controllers is empty
            if is_version_2:
                limits += _limits_of_group(cgroups, group, "memory.max")
            elif "memory" in controllers.split(","):
                limits += _limits_of_group(cgroups / "memory", group, "memory.limit_in_bytes")
    return max(min(limits) // 2, _LEAST)


def _limits_of_group(folder: Path, group: str, file_name: str) -> list[int]:
    """Return the memory limits in bytes of a control group and of its parents, which also apply to
    it.

    `folder` is where the control groups are mounted, and `group` is a path such as `/kubepods/a`.
    """
    limits = []
    own_group = PurePosixPath(group)
    for parent in (own_group, *own_group.parents):
        # the file is not visible in a container, or contains "max" if there is no limit
        with suppress(OSError, ValueError):
            file = folder / parent.relative_to("/") / file_name
            limits.append(int(file.read_text(encoding="ascii")))
    return limits


class Clock:
    """The time limit for one repository. The countdown starts with the first command."""

    def __init__(self, seconds: float, subject: str) -> None:
        self.seconds = seconds
        self.subject = subject
        self._end = 0.0

    def left(self) -> float:
        """Return the remaining seconds. Raises `UnreachableError` if no time is left."""
        now = time.monotonic()
        if not self._end:  # the countdown starts with the first command
            self._end = now + self.seconds
        if now >= self._end:
            raise UnreachableError(
                f"the Git server took too long ({self.why})",
                hint=_AGAIN,
                subject=self.subject,
            )
        return self._end - now

    @property
    def why(self) -> str:
        """The reason why a command was stopped: its repository is out of time."""
        return f"the limit for one repository is {self.seconds:.0f} seconds"


def _size_in_words(count: int) -> str:
    """Return a number of bytes as text, in its largest whole unit."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count % size == 0:
            return f"{count // size} {unit}"
    return f"{count / 1_000_000:g} MB"


_PATIENCE = 0.8  # seconds from SIGTERM to SIGKILL
_LOOKS = 8  # how many times the transfer is checked before it is considered stalled
_SLICE = 0.2  # seconds; the longest delay before a signal received by another thread takes effect
_NAP = 0.02  # seconds between two checks on systems without process handles
_PIECE = 1 << 16  # bytes; the capacity of a pipe
logging.getLogger("sh").setLevel(logging.WARNING)  # at INFO, sh logs every argument
# Only one thread at a time may fork. Meanwhile, sh turns off garbage collection for all threads: it
# must not run in the new process, and a second thread would turn it on again too early.
_ONE_AT_A_TIME = Lock()


def start(
    program: sh.Command,
    argv: Sequence[str],
    env: dict[str, str],
    files: Sequence[IO[bytes]],
    limit: Callable[[], None] | None = None,
    folder: str | None = None,
) -> Any:
    """Start a program for a `Watch`, and return its `sh.RunningCommand`.

    `files` are the program's stdin, stdout, and stderr. `limit` is called in the new process just
    before it executes the program. `folder` is the program's working directory.

    Raises `ValueError` if the process was killed before it could start.
    """
    # Python warns about forking while threads are running,
    # but here sh executes another program immediately.
    if sys.version_info >= (3, 12):
        warnings.filterwarnings(
            "ignore",
            r"This process .* is multi-threaded, use of fork",
            DeprecationWarning,
        )

    def begin() -> None:  # runs in the new process just before it executes the program
        shutdown.hear()  # unblock the signals that `unheard` has blocked
        if limit:
            limit()

    into, out, err = files
    # With `_bg`, we already hold the process when a signal arrives. With files and no `_timeout`,
    # sh's threads have nothing to do. In a new session, nothing can prompt on a terminal, and all
    # children can be terminated with the process.
    with _ONE_AT_A_TIME, shutdown.unheard():
        return program(
            *argv,
            _env=env,
            _cwd=folder,
            _in=into,
            _out=out,
            _err=err,
            _bg=True,
            _bg_exc=False,
            _return_cmd=True,
            _tty_out=False,
            _truncate_exc=False,
            _close_fds=False,
            _decode_errors="replace",
            _encoding="utf-8",
            _new_session=True,
            _preexec_fn=begin,
        )


def run_login_program(
    program: sh.Command,
    args: Sequence[str],
    env: dict[str, str],
    seconds: float,
    stdin: str = "",
    codes: tuple[int, ...] = (0,),
) -> Any:
    """Run a program that prints credentials. Return its `sh.RunningCommand` once it has exited.

    The program cannot prompt on a terminal. It is stopped after `seconds`, or by a signal.

    Raises sh's errors, such as `TimeoutException`, and `ErrorReturnCode` for an exit code that is
    not in `codes`. Their messages contain the arguments and the output. Raises `ValueError` if the
    program was killed before it could start.
    """
    shutdown.check()
    if sys.version_info >= (3, 12):  # suppress the warning about forking, as in `start`
        warnings.filterwarnings(
            "ignore",
            r"This process .* is multi-threaded, use of fork",
            DeprecationWarning,
        )
    with _ONE_AT_A_TIME, shutdown.unheard():
        running = program(
            *args,
            _env=env,
            _in=stdin,
            _bg=True,
            _bg_exc=False,
            _tty_in=False,
            _tty_out=False,
            _truncate_exc=False,
            _timeout=seconds,
            _new_session=True,
            _preexec_fn=shutdown.hear,
            _return_cmd=True,
            _ok_code=codes,
        )
    with shutdown.ending(lambda: send(running, "SIGTERM")):
        return running.wait()


def exit_code(running: Any) -> int:
    """Wait for a command to exit, and return its exit code."""
    try:
        return int(running.wait().exit_code)
    except sh.ErrorReturnCode as error:
        return int(error.exit_code)


class CapturedOutput:
    """A stream of a command's output.

    It keeps the last `most` bytes, or everything if `most` is 0.
    """

    def __init__(self, most: int = 0) -> None:
        self.source, sink = os.pipe()
        os.set_blocking(self.source, False)
        self.sink = open(sink, "wb", buffering=0)  # noqa: SIM115 - `close` closes it
        self.count = 0  # bytes read so far
        self._most = most
        self._kept = bytearray()

    def take(self, *, keep: bool = True) -> bool:
        """Read up to 64 KB of the bytes that have arrived. Return False at the end of the stream.
        Without `keep`, the bytes are only counted.
        """
        try:
            piece = os.read(self.source, _PIECE)
        except BlockingIOError:
            return True
        self.count += len(piece)
        if keep:
            self._kept += piece
            # deleting the start copies the rest, so it is only
            # done once the buffer is twice as long as needed
            threshold = 2 * self._most
            is_limited = self._most > 0
            if is_limited and len(self._kept) > threshold:
                del self._kept[: -self._most]
        return bool(piece)

    def text(self) -> bytes:
        """Return the last `most` bytes of the stream, or everything if `most` is 0.

        If the start is missing, the result begins with a whole line: half a URL might expose a
        password.
        """
        kept = bytes(self._kept[-self._most :])  # everything if `_most` is 0
        is_complete = len(kept) == self.count
        if is_complete:
            return kept
        whole_lines = kept.partition(b"\n")[2]
        return whole_lines or kept

    def close(self) -> None:
        """Close both ends of the pipe."""
        self.sink.close()
        os.close(self.source)


class Watch:
    """Watches a command, and stops it when it exceeds a limit.

    `limits` are the number of seconds that the command may take, the reason for stopping it after
    that, and the number of seconds that it may be silent (0 means no limit). Its `outputs` are
    read. The outputs and the packs in the folder `git_dir` must stay within `bounds`. `stop`
    receives the content of the last output, and returns a reason to stop the command, or "". No
    extra thread is needed, because the caller is waiting anyway.
    """

    def __init__(
        self,
        running: Any,
        limits: tuple[float, str, float],
        outputs: Sequence[CapturedOutput] = (),
        bounds: Bounds = Bounds(),
        git_dir: str = "",
        stop: Callable[[str], str] | None = None,
    ) -> None:
        """`running` is the command to watch, an `sh.RunningCommand`."""
        self.why = ""  # the reason why the command was stopped; "" if it exited on its own
        self._running = running
        # the time limit in seconds, the reason for exceeding
        # it, and the seconds allowed without a byte
        self._timeout, self._late_reason, self._stall = limits
        self._outputs = outputs
        self._bounds = bounds
        self._git_dir = git_dir
        self._stop = stop
        self._size_before = weight(git_dir) if git_dir else 0  # bytes of packs at the beginning
        # bytes read and written by the command as of the last check; None if unknown
        self._bytes_moved: int | None = None
        # points in time, in seconds of `time.monotonic`
        now = time.monotonic()
        self._began = now
        self._terminated_at = 0.0  # when SIGTERM was sent to the command; 0 if it was not
        self._moved_at = now  # when bytes were last transferred
        self._transfer_checked_at = now
        self._packs_checked_at = now

    def end(self) -> None:
        """Stop the command now. Signal handlers may call this."""
        self._terminated_at = self._terminated_at or time.monotonic()
        send(self._running, "SIGTERM")

    def wait(self) -> None:
        """Wait until the command has exited. Its exit code remains available from
        `running.wait()`.
        """
        # a pollable pidfd, which exists since Linux 5.3, but not on macOS
        handle: int | None = None
        with suppress(AttributeError, OSError):
            handle = os.pidfd_open(self._running.pid)
        poll = select.poll()
        if handle is not None:
            poll.register(handle, select.POLLIN)
        for output in self._outputs:
            poll.register(output.source, select.POLLIN)
        try:
            self._read_until_exit(poll, handle)
        finally:
            if handle is not None:
                os.close(handle)
        self._read_rest()

    def _read_until_exit(self, poll: select.poll, handle: int | None) -> None:
        """Read the outputs and check the limits until the command has exited.

        `handle` is the process's pidfd, which `poll` reports when the process exits. Without a
        handle (None), the exit is only noticed between two pauses, so the pauses are short at
        first.
        """
        pause = min(_SLICE if handle is not None else 0.001, self._timeout)  # seconds
        while True:
            # the file descriptors of outputs that have new bytes or have ended, and that of the
            # process if it has exited
            ready = {number for number, _ in poll.poll(pause * 1000)}
            for output in self._outputs:
                if output.source in ready:
                    is_open = output.take(keep=not self.why)
                    if not is_open:
                        poll.unregister(output.source)
            has_exited = handle in ready or (handle is None and not self._running.is_alive())
            if has_exited:
                return
            self._enforce_limits(time.monotonic())
            pause = _SLICE if handle is not None else min(2 * pause, _NAP)

    def _read_rest(self) -> None:
        """Read the bytes that have arrived in the outputs since the last check, and check the
        limits once more.

        Do not wait for the end of the stream, because a child may still hold the pipe open.
        """
        for output in self._outputs:
            has_more = True
            while has_more and output.count <= self._bounds.messages:
                count_before = output.count
                output.take(keep=not self.why)
                has_more = output.count > count_before
        if not self.why:
            self.why = self._exceeded_bound(time.monotonic())

    def _enforce_limits(self, now: float) -> None:
        """Terminate the command, and set `why`, if it has exceeded a limit, is stalled, or has
        printed output for which `stop` returns a reason. If it still does not exit, kill it.
        """
        if self._terminated_at:
            if now - self._terminated_at >= _PATIENCE:
                send(self._running, "SIGKILL")
            return

        # Remember when bytes were last transferred. Counting them requires reading /proc, so this
        # is only done occasionally.
        if self._stall and now - self._transfer_checked_at >= self._stall / _LOOKS:
            moved = bytes_moved(self._running.pid)
            # None means that the number of bytes is unknown
            has_moved = moved is None or moved != self._bytes_moved
            if has_moved:
                self._moved_at = now
            self._bytes_moved = moved
            self._transfer_checked_at = now

        is_stalled = self._stall > 0 and now - self._moved_at >= self._stall
        if now - self._began >= self._timeout:
            self.why = self._late_reason
        elif is_stalled:
            self.why = f"stalled: no data was sent or received for {self._stall:g} seconds"
        else:
            self.why = self._exceeded_bound(now)
            if self._stop and not self.why:
                last_output = self._outputs[-1].text().decode("utf-8", "replace")
                self.why = self._stop(last_output)
        if self.why:
            self.end()

    def _exceeded_bound(self, now: float) -> str:
        """Return the limit that the command has exceeded, in words, or "".

        The size of the output is checked in each call, and the size of the packs at most once a
        second.
        """
        bounds = self._bounds
        if sum(output.count for output in self._outputs) > bounds.messages:
            return bounds.too_many_messages
        is_too_soon = now - self._packs_checked_at < 1
        if not self._git_dir or is_too_soon:
            return ""

        self._packs_checked_at = now
        size = weight(self._git_dir)
        if size > bounds.pack:
            return bounds.too_much_pack
        if size == self._size_before:
            # Before the pack starts, git collects all refs without printing them. Each byte counts
            # twice, because one of git's processes writes it and another reads it.
            most_moved = 2 * bounds.messages
            moved = bytes_moved(self._running.pid) or 0
            if moved > most_moved:
                return bounds.too_many_messages
        return ""


def weight(git_dir: str) -> int:
    """Return the total size in bytes of a repository's packs, including one that is still being
    received.
    """
    total = 0
    with suppress(OSError):
        for entry in os.scandir(f"{git_dir}/objects/pack"):
            with suppress(OSError):
                total += entry.stat().st_size
    return total


def finish(running: Any) -> None:
    """Stop a command that is no longer needed, with SIGTERM and, a moment later, SIGKILL."""
    watch = Watch(running, (_PATIENCE, "", 0))
    watch.end()
    watch.wait()


def send(running: Any, name: str) -> None:
    """Send a signal, such as "SIGTERM", to a command and all its child processes."""
    with suppress(ProcessLookupError, PermissionError):  # it may have already exited
        os.killpg(running.pid, getattr(signal, name))


def bytes_moved(session: int) -> int | None:
    """Return how many bytes the processes of a session have read and written, or None if the system
    does not report this.

    `session` is the process ID of the command that started the session. ssh is excluded, because
    its keep-alives transfer bytes even on an idle connection.
    """
    total: int | None = None
    with suppress(OSError):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError, ValueError, IndexError):  # the process may have exited
                # pid (name) state parent group session …; the name may itself contain parentheses
                pid_and_name, _, fields = _read_proc_file(f"/proc/{pid}/stat").rpartition(")")
                _, _, _, session_of_process, *_ = fields.split()
                is_ssh = pid_and_name.endswith("(ssh")
                if int(session_of_process) == session and not is_ssh:
                    total = (total or 0) + _bytes_of_process(pid)
    return total


def _bytes_of_process(pid: str) -> int:
    """Return how many bytes a process has read and written."""
    lines = _read_proc_file(f"/proc/{pid}/io").split("\n")
    read_line, written_line = lines[:2]  # rchar: 1, wchar: 2
    return int(read_line.split()[1]) + int(written_line.split()[1])


def _read_proc_file(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
