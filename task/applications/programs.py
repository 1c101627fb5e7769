"""Runs `helm template` and `kustomize build` on a copy of some files, without network, home folder or login."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import sh

from task import shutdown
from task.errors import Malformed
from task.files import remove_folder, temporary_folder
from task.processes.bounds import Bounds
from task.processes.watch import CapturedOutput, Watch, finish, send

SECONDS = 60.0
LARGEST = 64_000_000  # bytes of the files to render, and of the result
_BOUNDS = Bounds(messages=LARGEST, pack=LARGEST)
_TAIL = 16_000  # bytes of stderr that are kept
_LAST = 3  # of these lines, an error quotes so many
_LONGEST = 600
_ADVICE = "Use --debug flag"  # Helm's own advice, about a flag that this step does not have
_NOWHERE = "http://127.0.0.1:9"  # the proxy for any fetch that is tried nevertheless: nothing listens on this port
_ENDED = "the templates or patches make too much, or never end"


def found(names: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the path of the first of these programs that is installed, or ""."""
    folders = [folder for folder in environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    return next(filter(None, (shutil.which(name, path=os.pathsep.join(folders)) for name in names)), "")


def run(
    argv: Sequence[str],
    files: Mapping[str, str],
    environ: Mapping[str, str],
    *,
    seconds: float = SECONDS,
    bounds: Bounds = _BOUNDS,
) -> str:
    """Run a program with these files in its working folder, and return what it prints.

    Raises Malformed, with the program's own message if it failed.
    """
    shutdown.check()
    room = temporary_folder(environ.get("TMPDIR") or "/tmp")  # noqa: S108 - the name is random, the folder private
    try:
        tree = os.path.join(room, "files")
        _write(files, tree)
        code, out, err, why = _run(argv, tree, _environment(room), seconds, bounds)
    finally:
        remove_folder(room)
    name = os.path.basename(argv[0])
    if why:
        raise Malformed(f"{name} was ended: {why}", _ENDED)
    if code:
        shutdown.check()
        said = [line for line in err.replace(tree, ".").splitlines() if line.strip() and not line.startswith(_ADVICE)]
        raise Malformed(f"{name} ended with {code}: {' '.join(said[-_LAST:])[:_LONGEST]}", f"try {name} by hand")
    return out


def _write(files: Mapping[str, str], tree: str) -> None:
    """Write the files. Raises Malformed for a path that cannot be in a checkout."""
    if sum(len(text) for text in files.values()) > LARGEST:
        raise Malformed(f"the files hold more than {LARGEST // 1_000_000} MB", "name a smaller folder")
    os.makedirs(tree, exist_ok=True)
    for path, text in files.items():
        if "\0" in path or {"", ".", ".."} & set(path.split("/")):
            raise Malformed(f"{path[:200]!r} is not a path of a file", "rename the file")
        full = os.path.join(tree, path)
        try:
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "x", encoding="utf-8", newline="") as file:
                file.write(text)
        except OSError as error:
            raise Malformed(f"cannot copy {path[:200]!r}: {error.strerror}", "rename the file, or free space") from None


def _environment(room: str) -> dict[str, str]:
    """Return the whole environment: it has no token, no configuration, no other program, and no way to a server."""
    home = os.path.join(room, "home")
    os.makedirs(home)
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _NOWHERE)
    proxies |= {name.lower(): value for name, value in proxies.items()}
    homes = ("HOME", "TMPDIR", "PATH", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
    helm = ("HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME", "HELM_PLUGINS")
    git = {"GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    return {**dict.fromkeys((*homes, *helm), home), **proxies, **git, "KUBECONFIG": os.devnull, "LANG": "C.UTF-8"}


def _run(
    argv: Sequence[str], folder: str, env: dict[str, str], seconds: float, bounds: Bounds
) -> tuple[int, str, str, str]:
    """Return the exit code, stdout, stderr, and why the program was stopped, or ""."""
    if sys.version_info >= (3, 12):  # it warns of any fork with threads, but here the child only starts a program
        warnings.filterwarnings("ignore", r"This process .* is multi-threaded, use of fork", DeprecationWarning)
    limit = bounds.limits()

    def begin() -> None:  # runs in the new process before it becomes the program
        shutdown.hear()
        limit()

    with shutdown.shield(), ExitStack() as opened:
        out, err = CapturedOutput(), CapturedOutput(_TAIL)
        opened.callback(out.close)
        opened.callback(err.close)
        nothing = opened.enter_context(open(os.devnull, "rb"))
        try:
            with shutdown.unheard():
                running: Any = sh.Command(argv[0])(
                    *argv[1:], _env=env, _cwd=folder, _in=nothing, _out=out.sink, _err=err.sink,
                    _bg=True, _bg_exc=False, _return_cmd=True, _tty_out=False, _truncate_exc=False, _close_fds=False,
                    _new_session=True, _preexec_fn=begin,
                )  # fmt: skip
        # Such as a program for another architecture; a ValueError if the process was killed before it could begin.
        except (sh.ForkException, sh.CommandNotFound, OSError, ValueError) as error:
            raise Malformed(f"{argv[0]} cannot be started", "install the one for this machine") from error
        out.sink.close()
        err.sink.close()
        watch = Watch(running, (seconds, f"it took more than {seconds:.0f} seconds", 0), (out, err), bounds)
        try:
            with shutdown.ending(watch.end):
                watch.wait()
        except BaseException:
            finish(running)
            raise
        if watch.why:
            send(running, "SIGKILL")  # for children that did not end with it
        try:
            code = int(running.wait().exit_code)
        except sh.ErrorReturnCode as error:
            code = int(error.exit_code)
        why = watch.why
        if why == bounds.too_many_messages:
            why = f"it printed more than {bounds.messages // 1_000_000} MB"
        return code, out.text().decode("utf-8", "replace"), err.text().decode("utf-8", "replace"), why
