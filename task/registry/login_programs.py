"""Runs programs that return logins: Docker's credential helpers and the scripts of `ext:`. It uses no shell."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Mapping

import sh

from task import shutdown
from task.errors import RegistryAccessError, RegistryDownError, RegistryError
from task.processes import child_environment
from task.registry.docker_config import RegistryLogin
from task.secret import Secret

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_PATIENCE = {"helper": 30, "script": 10}  # seconds; 10 is AIU's limit for scripts
_NO_LOGIN = b"credentials not found"  # every helper that uses docker-credential-helpers prints this
_TOKEN = "<token>"  # noqa: S105 - with this user name, a helper says that the secret is an identity token


def helper(name: str, server: str, environ: Mapping[str, str], *, needed: bool) -> RegistryLogin | None:
    """Return the login for a registry from `docker-credential-<name> get`, or None if it has none.

    A helper that is not `needed` (a `credsStore`, for all registries) may be missing: a config file that was copied
    from a laptop names `desktop` or `osxkeychain`. Raises `RegistryError` and its subclasses.
    """
    if not _NAME.fullmatch(name):
        raise RegistryAccessError(
            f"{name[:100]!r} cannot be the name of a credential helper", hint="check Docker's config file"
        )
    program = f"docker-credential-{name}"
    code, out, err = _run("helper", program, ("get",), server, environ)
    if code is None:
        if not needed:
            return None
        raise RegistryAccessError(f"{program} is not installed", hint="install it, or give the login in another way")
    if code:
        if _NO_LOGIN in (out + err).lower():
            return None
        raise RegistryAccessError(
            f"{program} gives no login for {server} (exit code {code})", hint="run it by hand to see why"
        )
    try:
        data = json.loads(out)
        user, secret = data.get("Username") or "", data.get("Secret") or ""
    except (ValueError, AttributeError, RecursionError):
        user, secret = None, None
    if not isinstance(user, str) or not isinstance(secret, str):
        raise RegistryAccessError(f"{program} returned no login", hint="run it by hand to see why")
    if not secret:
        return None
    if user == _TOKEN:
        return RegistryLogin(identity=Secret(secret), origin=program)
    return RegistryLogin(user, Secret(secret), origin=program)


def script(path: str, environ: Mapping[str, str]) -> str:
    """Return the output of an `ext:` script, `user:password`. Raises `RegistryError` and its subclasses."""
    if not os.path.isabs(path) or os.path.normpath(path) != path:
        raise RegistryError(f"ext:{path[:200]} is not an absolute path", hint="write ext:/path/of/script")
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise RegistryAccessError(f"ext:{path} is not a program", hint="mount it, and make it executable")
    code, out, _ = _run("script", path, (), "", environ)
    if code != 0:
        raise RegistryAccessError(f"ext:{path} failed (exit code {code})", hint="run it by hand to see why")
    return out.decode("utf-8", "replace").strip()


def _run(
    kind: str, name: str, args: tuple[str, ...], stdin: str, environ: Mapping[str, str]
) -> tuple[int | None, bytes, bytes]:
    """Return the exit code (None if the program is missing), stdout and stderr.

    No error quotes the program's output.
    """
    shutdown.check()
    try:
        folders = [folder for folder in environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
        program = sh.Command(name, None if os.path.isabs(name) else folders)
    except sh.CommandNotFound:
        return None, b"", b""
    if sys.version_info >= (3, 12):  # sh forks, and since 3.12, Python warns if a process with threads forks
        warnings.filterwarnings("ignore", r"This process .* is multi-threaded, use of fork", DeprecationWarning)
    theirs = child_environment(environ, (name,) if kind == "helper" else ())
    try:
        with shutdown.unheard():
            running = program(
                *args, _env=theirs, _in=stdin, _bg=True, _bg_exc=False, _tty_in=False, _tty_out=False,
                _timeout=_PATIENCE[kind], _new_session=True, _preexec_fn=shutdown.hear, _return_cmd=True,
                _ok_code=tuple(range(256)),
            )  # fmt: skip
        with shutdown.ending(running.terminate):
            running = running.wait()
        return running.exit_code, bytes(running.stdout), bytes(running.stderr)
    except sh.TimeoutException:
        raise RegistryDownError(
            f"{name} gave no login within {_PATIENCE[kind]} seconds",
            hint="run it again, or run the program by hand to see why",
        ) from None
    except ValueError:  # sh had no word from the new process
        raise RegistryDownError(f"{name} was killed before it could begin", hint="run it again") from None
    except (sh.ErrorReturnCode, OSError) as error:  # sh puts the command line and the output into the error's text
        shutdown.check()
        raise RegistryAccessError(f"{name} failed ({type(error).__name__})", hint="run it by hand to see why") from None
