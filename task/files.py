"""Reads files whose paths come from options, variables, and folders: only regular files, and only
up to a maximum size.

A link may lead to a pipe or to /proc/kmsg, which block the reader, or to /dev/zero, which never
ends.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import shutil
import stat
import tempfile
import time

from task.errors import ExhaustedError, UnreachableError, UsageError

LARGEST = 10_000_000  # bytes; certificates, keys, and settings need at most a few hundred thousand
PATIENCE = 120.0  # seconds that a program in `<(…)` may remain silent
_NO_SIZE = 1_000_000  # bytes to read from a file that claims size 0, like those in /proc and /sys
_PIECE = 1 << 20
# the paths of files that the shell has opened for us: `<(command)`
_OWN = (
    "/dev/fd/",
    "/proc/self/fd/",
    "/dev/stdin",
)
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
# Maximum length of a folder's path in bytes. Linux limits a
# socket's path to 108, and names in the folder need up to 45.
_SHORT = 60


def read_file(path: str, most: int = LARGEST) -> bytes:
    """Return the content of a file of at most `most` bytes.

    Raises `OSError` with the reason in `strerror`: the path is not a file, the file is too large,
    or reading it would block. /dev/null counts as an empty file. A pipe is read only if the shell
    has opened it for us: `<(command)`.
    """
    # O_NONBLOCK: neither opening nor reading a pipe may block
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        file_stat = os.fstat(file)
        is_shell_pipe = stat.S_ISFIFO(file_stat.st_mode) and path.startswith(_OWN)
        if not is_shell_pipe:
            _refuse_special_file(file_stat, path)
            if file_stat.st_size > most:
                raise _too_large(path, most)
            if file_stat.st_size == 0:  # the file may still have content, as in /proc
                most = min(most, _NO_SIZE)

        parts: list[bytes] = []
        size = 0
        while size <= most:
            rest = most + 1 - size  # one byte more than allowed reveals that the file is too large
            part = _read_piece(file, min(rest, _PIECE), path, waits=is_shell_pipe)
            if not part:
                return b"".join(parts)
            parts.append(part)
            size += len(part)
        raise _too_large(path, most)
    finally:
        os.close(file)


def read_text(path: str, most: int = LARGEST, errors: str = "strict") -> str:
    """Return the content of a UTF-8 file, with Unix line endings.

    Raises the errors of `read_file`, and `UnicodeDecodeError`.
    """
    text = read_file(path, most).decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def check_file(path: str) -> None:
    """Raise `OSError` unless the path is a readable file.

    Call this before another program or library opens the file.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        _refuse_special_file(os.fstat(file), path)
    finally:
        os.close(file)


def write_private(path: str, text: str) -> None:
    """Write a file that only this user can read. Links are not followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def temporary_folder(parent: str, *, sockets: bool = False) -> str:
    """Create a folder that only this user can read, and return its path.

    Raises `UsageError` if the parent does not exist, and `UnreachableError` if creating the folder
    fails.

    With `sockets`, the folder is in /tmp if its path would otherwise be too long for a socket, as
    with TMPDIR on macOS.
    """
    prefix = "image-update-"
    example_path = f"{parent}/{prefix}12345678"  # `mkdtemp` appends eight characters
    if sockets and len(os.fsencode(example_path)) > _SHORT:
        parent = "/tmp"  # noqa: S108 - the name is random, the folder private
    if not os.path.isdir(parent):
        raise UsageError(
            f"TMPDIR: {parent} is not a folder",
            hint="set TMPDIR to a folder that this user can write to",
        )
    try:
        return tempfile.mkdtemp(prefix=prefix, dir=parent)
    except OSError as error:
        raise UnreachableError(
            f"cannot create a temporary folder in {parent}: {error.strerror}",
            hint="free some space, or set TMPDIR to another folder",
        ) from error


def remove_folder(folder: str) -> None:
    """Remove a folder and its contents.

    Retry a few times, because a child process of a stopped git may still be writing to the folder.
    """
    for pause in (0.02, 0.1, 0.3, 0):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return
        time.sleep(pause)


def exhausted(error: BaseException | None) -> ExhaustedError | None:
    """Return an error with a hint if file descriptors, memory, or threads have run out, or else
    None.

    The reason may be the error itself, or one of the errors that caused it. At most ten of these
    causes are examined.
    """
    for _ in range(10):
        if error is None:
            return None
        no_resources = _exhausted_without_causes(error)
        if no_resources:
            return no_resources
        error = error.__cause__ or error.__context__
    return None


def _exhausted_without_causes(error: BaseException) -> ExhaustedError | None:
    """Return an error with a hint if `error` itself reports that file descriptors, memory, or
    threads have run out, or else None.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE:
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return ExhaustedError(
            f"too many open files: this step can have {most} open at a time",
            hint="raise the limit where the step is started, such as with ulimit -n 1024",
        )
    if number == errno.ENFILE:
        return ExhaustedError(
            "too many open files on this machine",
            hint="close the programs that keep them open, then run it again",
        )
    if number == errno.ENOMEM or isinstance(error, MemoryError):
        return ExhaustedError(
            "this step does not have enough memory",
            hint="raise its limit: the pod's resources.limits.memory, or ulimit -d and -v",
        )
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return ExhaustedError(
            "this step cannot start another thread",
            hint=(
                "raise its limits on memory and processes: ulimit -d, -v, and -u, or the pod's"
                " PID limit"
            ),
        )
    return None


def _refuse_special_file(file_stat: os.stat_result, path: str) -> None:
    """Raise `OSError` unless the file is a regular file or /dev/null."""
    mode = file_stat.st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    is_dev_null = stat.S_ISCHR(mode) and file_stat.st_rdev == os.makedev(1, 3)
    is_readable = stat.S_ISREG(mode) or is_dev_null
    if not is_readable:
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", path)


def _read_piece(file: int, size: int, path: str, *, waits: bool) -> bytes:
    """Return the next bytes of an open file, at most `size`, or b"" at the end of the file.

    With `waits`, wait up to `PATIENCE` for bytes from a pipe. Raises `OSError` with the reason in
    `strerror` if no bytes arrive in time.
    """
    if waits:
        poll = select.poll()
        poll.register(file, select.POLLIN)
        has_data = poll.poll(PATIENCE * 1000)
        if not has_data:
            raise TimeoutError(
                errno.ETIMEDOUT,
                f"no data for {PATIENCE:g} seconds",
                path,
            )
    try:
        return os.read(file, size)
    except BlockingIOError:
        raise OSError(
            errno.EINVAL,
            "it is not a regular file, and reading it may never end",
            path,
        ) from None


def _too_large(path: str, most: int) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {most:,} bytes", path)
