"""The programs that we start: their environment, their limits, and a watch that enforces them.

Git and its local child processes get a short list of variables. Programs that provide credentials
(credential helpers, `ext:` scripts, exec plugins, ssh and the programs in its configuration) read
their own variables, which cannot be listed. They get everything except secrets, which are
recognized by name. Of the secrets, they get cloud credentials (AWS_*, AZURE_*, GOOGLE_*), because
their helpers log in with them, and the secrets that their own configuration or script mentions.

The bytes and the time that a Git server may use are limited: otherwise, a hostile server could send
for hours.
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

_OURS = ("IMAGE_UPDATE_", "INPUT_")  # our options and secrets; a GitHub action's inputs
# Variables that git, gpg, and ssh-keygen need to run, and that git and ssh need to reach a server.
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
    r"(?![A-Z])(?!_(?:FILE|PATH|DIR)$)"  # TOKENIZER is not a token; a file's path is not a secret
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
# Programs that need one of these secrets to log in.
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
_FEW = 20  # words of a program's configuration that are checked
_SCRIPT = 65536  # bytes to read from a script


def basic_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a program needs to run, or to reach a server."""
    return {variable: value for variable, value in environ.items() if _BASIC.fullmatch(variable)}


def child_environment(
    environ: Mapping[str, str],
    configured: Collection[str] = (),
) -> dict[str, str]:
    """Return the environment for a credential program, without the secrets that it does not need.

    `configured` has the strings that configure the program, including its name or path. A secret is
    kept if one of them, or a script that it refers to, mentions the secret (`$GITHUB_TOKEN`).
    """
    needed = _needs(configured, environ.get("PATH", ""))
    env = {}
    for name, value in environ.items():
        if name.startswith(_OURS):
            continue
        if name in needed or not is_secret(name):
            env[name] = value
    return env


def is_secret(name: str) -> bool:
    """Return whether a variable, by its name, has a secret that is not a cloud credential."""
    harmless = _OF_CLOUDS.match(name) or _BASIC.fullmatch(name)
    return not harmless and _SECRET.search(name) is not None


def _needs(configured: Collection[str], path: str) -> frozenset[str]:
    """Return the names in a program's configuration, and the variables of a known program.

    `path` is the search path for the scripts that the configuration refers to.
    """
    needed: set[str] = set()
    for program, variables in _KNOWN:
        if any(program.search(text) for text in configured):
            needed.update(variables)

    words: list[str] = []
    for text in configured:
        words += [text, *_PROGRAM.findall(text)[:_FEW]]
    scripts = [_script(word, path) for word in words]
    for text in (*configured, *scripts):
        needed.update(_NAME.findall(text))
    return frozenset(needed)


def _script(word: str, path: str) -> str:
    """Return the start of the script that a word refers to, or "" if it does not refer to a
    script.
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
    except OSError:  # it may be executable, but not readable
        return ""


MEMORY = 1 << 30
_LEAST = 64 << 20  # bytes; with less, git cannot read an ordinary repository
# seconds for one repository, in addition to the time in which others may keep pushing to its
# branches
SPARE = 600.0
_AGAIN = "run it again; a longer --deadline gives the repository more time"


@dataclass(frozen=True)
class Bounds:
    """The limits for one repository.

    They are far above the needs of any update. Tests lower them.
    """

    messages: int = 64_000_000  # bytes of refs and messages from a command
    pack: int = 2 << 30  # bytes of packs for a repository
    # bytes of memory for each git process: it collects refs and error pages before it prints them
    memory: int = MEMORY
    seconds: float = 120.0 + SPARE  # for all commands on a repository

    def limits(self) -> Callable[[], None]:
        """Return a function that a new git process calls first, so that the kernel enforces these
        limits.

        A stricter limit on our own process (`ulimit -f`) is kept. The file size limit only works
        for packs because `fetch.unpackLimit=1` keeps each pack in one file.
        """
        wanted = ((resource.RLIMIT_FSIZE, self.pack), (resource.RLIMIT_DATA, self.memory))
        to_lower = []
        for limit_type, most in wanted:
            soft, hard = resource.getrlimit(limit_type)
            if soft == resource.RLIM_INFINITY or soft > most:
                to_lower.append((limit_type, (most, hard)))

        def limit() -> None:
            for limit_type, soft_and_hard in to_lower:
                with suppress(OSError, ValueError):  # the system does not support this limit
                    resource.setrlimit(limit_type, soft_and_hard)

        return limit

    def passed(self, messages: str) -> str:
        """Return the limit that git has hit according to its own messages, or "".

        The server's messages start with `remote:`.
        """
        own_lines = [line for line in messages.splitlines() if not line.startswith("remote:")]
        if any("Out of memory" in line for line in own_lines):
            return f"git would need more than {_amount(self.memory)} of memory"
        soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        is_our_limit = soft == resource.RLIM_INFINITY or soft > self.pack
        if is_our_limit and any("File too large" in line for line in own_lines):
            return self.too_much_pack
        return ""

    @property
    def too_much_pack(self) -> str:
        """The reason why a transfer was stopped."""
        return f"it sent more than {_amount(self.pack)} of pack data"

    @property
    def too_many_messages(self) -> str:
        """The reason why a command was stopped."""
        return f"it sent more than {_amount(self.messages)} of refs and messages"


def memory_of_step(
    cgroups: Path = Path("/sys/fs/cgroup"),
    own: Path = Path("/proc/self/cgroup"),
) -> int:
    """Return the memory for each git process: 1 GiB, or half of the step's limit if that is less.

    Git can report that it ran out of memory. If the step reaches its own limit first, the kernel
    kills git without a message.
    """
    limits = [2 * MEMORY]
    with suppress(OSError, ValueError):  # not on Linux
        for line in own.read_text(encoding="utf-8").splitlines():
            _, controllers, group = line.split(":", 2)
            # cgroups v2 does not list controllers here
            if not controllers:
                limits += _limits_of_group(cgroups, group, "memory.max")
            elif "memory" in controllers.split(","):
                limits += _limits_of_group(cgroups / "memory", group, "memory.limit_in_bytes")
    return max(min(limits) // 2, _LEAST)


def _limits_of_group(folder: Path, group: str, file_name: str) -> list[int]:
    """Return the memory limits of a control group and of its parents, which also limit it."""
    limits = []
    own_group = PurePosixPath(group)
    for parent in (own_group, *own_group.parents):
        # not visible in a container; "max" if there is no limit
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
        """Return the remaining seconds. Raises `UnreachableError` when the time is up."""
        now = time.monotonic()
        if not self._end:  # the first command
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
        """The reason why a command was stopped."""
        return f"the limit for one repository is {self.seconds:.0f} seconds"


def _amount(count: int) -> str:
    """Return a number of bytes in its largest whole unit."""
    for unit, bits in (("GiB", 30), ("MiB", 20)):
        if count % (1 << bits) == 0:
            return f"{count >> bits} {unit}"
    return f"{count / 1_000_000:g} MB"


_PATIENCE = 0.8  # seconds from SIGTERM to SIGKILL
_LOOKS = 8  # how often the transfer is checked before it counts as stalled
_SLICE = 0.2  # seconds; a signal received by another thread takes effect within this time
_NAP = 0.02  # seconds between two checks, if the system does not have process handles
_PIECE = 1 << 16  # bytes; the size of a pipe
logging.getLogger("sh").setLevel(logging.WARNING)  # at INFO, sh logs every argument
_ONE_AT_A_TIME = Lock()  # a process must not fork while another thread is forking


def start(
    program: sh.Command,
    argv: Sequence[str],
    env: dict[str, str],
    files: Sequence[IO[bytes]],
    limit: Callable[[], None] | None = None,
    folder: str | None = None,
) -> Any:
    """Start a program for a `Watch`.

    `files` are its stdin, stdout and stderr; `limit` is called in the new process.

    Raises `ValueError` if the process was killed before it could start.
    """
    # Python warns about a fork while threads are running, but sh executes another program at once.
    if sys.version_info >= (3, 12):
        warnings.filterwarnings(
            "ignore",
            r"This process .* is multi-threaded, use of fork",
            DeprecationWarning,
        )

    def begin() -> None:  # runs in the new process before it becomes the program
        shutdown.hear()
        if limit:
            limit()

    into, out, err = files
    # `_bg`, so that we already have the process when a signal arrives. Files and no `_timeout`, so
    # that sh's threads have nothing to do. A new session, so that nothing can prompt on a terminal,
    # and so that all children end with the process.
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
    """Run a program that prints credentials, and return its `sh.RunningCommand` when it has exited.

    It cannot prompt. A signal stops it. Raises sh's errors, such as `TimeoutException`, and
    `ErrorReturnCode` for an exit code that is not in `codes`. Their messages contain the arguments
    and the output. Raises `ValueError` if the program was killed before it could start.
    """
    shutdown.check()
    if sys.version_info >= (3, 12):  # as in `start`
        warnings.filterwarnings(
            "ignore",
            r"This process .* is multi-threaded, use of fork",
            DeprecationWarning,
        )
    with shutdown.unheard():
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
    """An output stream of a command.

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
        """Read the bytes that have arrived, and return False at the end of the stream."""
        try:
            piece = os.read(self.source, _PIECE)
        except BlockingIOError:
            return True
        self.count += len(piece)
        if keep:
            self._kept += piece
            is_limited = self._most > 0
            if is_limited and len(self._kept) > 2 * self._most:  # rarely, because it copies bytes
                del self._kept[: -self._most]
        return bool(piece)

    def text(self) -> bytes:
        """Return the kept bytes.

        If the start is missing, begin with a whole line: half a URL may show a password.
        """
        kept = bytes(self._kept[-self._most :])  # everything if `_most` is 0
        if len(kept) == self.count:
            return kept
        whole_lines = kept.partition(b"\n")[2]
        return whole_lines or kept

    def close(self) -> None:
        """Close both ends of the pipe."""
        self.sink.close()
        os.close(self.source)


class Watch:
    """Watches a command, and stops it when it exceeds a limit.

    `limits` are the seconds that the command may take, the reason for stopping it after that, and
    the seconds that it may be silent (0 means no limit). Its `outputs` are read. The outputs and
    the packs in the folder `git_dir` must stay within `bounds`. `stop` gets the content of the last
    output, and returns a reason to stop the command, or "". This does not need a thread, because
    the caller is waiting anyway.
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
        """`running` is the command, an `sh.RunningCommand`."""
        self.why = ""  # the reason why the command was stopped; "" if it exited on its own
        self._running = running
        self._timeout, self._late, self._stall = limits
        self._outputs = outputs
        self._bounds = bounds
        self._git_dir = git_dir
        self._stop = stop
        self._before = weight(git_dir) if git_dir else 0
        self._terminated = 0.0  # when the command got SIGTERM
        self._moved: int | None = None  # bytes at the last look; None if unknown
        now = time.monotonic()
        self._began = now
        self._moved_at = now  # when bytes last moved
        self._looked = now  # when that was last checked
        self._weighed = now  # when the size of the packs was last checked

    def end(self) -> None:
        """Stop the command now. A signal handler may call this."""
        self._terminated = self._terminated or time.monotonic()
        send(self._running, "SIGTERM")

    def wait(self) -> None:
        """Wait until the command has exited. Its exit code is left for `running.wait()`."""
        handle: int | None = None  # a pidfd, which can be polled: since Linux 5.3, not on macOS
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
        self._rest()

    def _read_until_exit(self, poll: select.poll, handle: int | None) -> None:
        """Read the outputs, and check the limits, until the command has exited.

        Without a handle, the exit is only noticed between two pauses, so these start short.
        """
        pause = min(_SLICE if handle is not None else 0.001, self._timeout)  # seconds
        while True:
            ready = {number for number, _ in poll.poll(pause * 1000)}
            for output in self._outputs:
                if output.source in ready:
                    is_open = output.take(keep=not self.why)
                    if not is_open:
                        poll.unregister(output.source)
            if handle in ready or (handle is None and not self._running.is_alive()):
                return
            self._look(time.monotonic())
            pause = _SLICE if handle is not None else min(2 * pause, _NAP)

    def _rest(self) -> None:
        """Read the rest of the output.

        Do not wait for the end of the stream, because a child may still hold the pipe open.
        """
        for output in self._outputs:
            count_before = -1
            while count_before < output.count <= self._bounds.messages:  # until nothing arrives
                count_before = output.count
                output.take(keep=not self.why)
        if not self.why:
            self.why = self._too_much(time.monotonic())

    def _look(self, now: float) -> None:
        """Terminate the command if it has exceeded a limit, and kill it if it does not exit."""
        if self._terminated:
            if now - self._terminated >= _PATIENCE:
                send(self._running, "SIGKILL")
            return

        # remember when bytes last moved
        if self._stall and now - self._looked >= self._stall / _LOOKS:
            moved = bytes_moved(self._running.pid)
            has_moved = moved is None or moved != self._moved  # None: it cannot be measured
            if has_moved:
                self._moved_at = now
            self._moved = moved
            self._looked = now

        if now - self._began >= self._timeout:
            self.why = self._late
        elif now - self._moved_at >= self._stall > 0:
            self.why = f"stalled: no data was sent or received for {self._stall:g} seconds"
        else:
            self.why = self._too_much(now)
            if self._stop and not self.why:
                last_output = self._outputs[-1].text().decode("utf-8", "replace")
                self.why = self._stop(last_output)
        if self.why:
            self.end()

    def _too_much(self, now: float) -> str:
        """Return the bound that the command has exceeded, or "".

        While it is running, check the size of the packs once a second.
        """
        bounds = self._bounds
        if sum(output.count for output in self._outputs) > bounds.messages:
            return bounds.too_many_messages
        if not self._git_dir or now - self._weighed < 1:
            return ""

        self._weighed = now
        packs = weight(self._git_dir)
        if packs > bounds.pack:
            return bounds.too_much_pack
        if packs == self._before:
            # Before the pack starts, git collects all refs without printing them. Each byte counts
            # twice: written and read.
            moved = bytes_moved(self._running.pid) or 0
            if moved > 2 * bounds.messages:
                return bounds.too_many_messages
        return ""


def weight(git_dir: str) -> int:
    """Return the size in bytes of the packs in a repository,
    including one that is still being received.
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
    """Send a signal, such as "SIGTERM", to a command and all its children."""
    with suppress(ProcessLookupError, PermissionError):  # it may have already exited
        os.killpg(running.pid, getattr(signal, name))


def bytes_moved(session: int) -> int | None:
    """Return the number of bytes that a session's processes have read and written, or None if the
    system does not report it.

    ssh is excluded, because its keep-alives move bytes on an idle connection.
    """
    total: int | None = None
    with suppress(OSError):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError, ValueError, IndexError):  # it may have exited
                # pid (name) state parent group session …
                name, _, fields = _read(f"/proc/{pid}/stat").rpartition(")")
                _, _, _, session_of_process, *_ = fields.split()
                is_ssh = name.endswith("(ssh")
                if int(session_of_process) == session and not is_ssh:
                    total = (total or 0) + _bytes_of_process(pid)
    return total


def _bytes_of_process(pid: str) -> int:
    """Return the number of bytes that a process has read and written."""
    read_line, written_line = _read(f"/proc/{pid}/io").split("\n")[:2]  # rchar: 1, wchar: 2
    return int(read_line.split()[1]) + int(written_line.split()[1])


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
