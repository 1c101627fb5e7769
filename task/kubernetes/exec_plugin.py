"""Runs an exec plugin of a kubeconfig (`aws eks get-token`, `kubelogin`, …) and returns the login that it prints.

The protocol is client.authentication.k8s.io, v1 and v1beta1. There is no shell and no prompt, and the plugin's stdout
is never shown.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sh

from task import shutdown
from task.errors import SourceAccessError, UsageError
from task.files import read_file
from task.kubernetes.kubeconfig import Plugin, Server
from task.processes.environment import child_environment
from task.processes.watch import send
from task.secret import Secret
from task.text import one_line

SECONDS = 120  # for one call
_SHOWN = 500  # characters of a plugin's own error message
_SECRETIVE = 6  # variables with at least this many characters are not shown


@dataclass(frozen=True)
class Credential:
    """The answer of a plugin."""

    token: Secret = Secret("")
    certificate: str = ""
    key: Secret = Secret("")
    expires: float = 0.0  # seconds since 1970; 0 if the plugin does not say


def ask(plugin: Plugin, server: Server, environ: Mapping[str, str]) -> Credential:
    """Run the plugin. Raises `UsageError` if it is missing, and `SourceAccessError` if it fails."""
    theirs = child_environment(environ, (plugin.command, *plugin.args))
    out = _run(plugin, {**theirs, **dict(plugin.env), "KUBERNETES_EXEC_INFO": _info(plugin, server)})
    try:
        said = json.loads(out)
        status = said["status"]
        version, token = said.get("apiVersion"), status.get("token") or ""
        certificate, key = status.get("clientCertificateData") or "", status.get("clientKeyData") or ""
        until = status.get("expirationTimestamp")
        expires = datetime.fromisoformat(until).timestamp() if until else 0.0
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _useless(plugin, "does not answer with an ExecCredential that has a status") from None
    if version != plugin.version:
        raise _useless(plugin, f"is configured for {plugin.version}, but answers in another version")
    if (not token and not certificate) or bool(certificate) != bool(key):
        raise _useless(plugin, "gives neither a token nor a certificate with its key")
    return Credential(Secret(token), certificate, Secret(key), expires)


def _info(plugin: Plugin, server: Server) -> str:
    """Return the request, which the plugin reads from its environment."""
    spec: dict[str, Any] = {"interactive": False}
    if plugin.tell_cluster:
        authorities = server.ca_base64
        if server.ca_file and not authorities:
            with suppress(OSError):  # the connection will report the problem
                authorities = b64encode(read_file(server.ca_file)).decode()
        cluster = {
            "server": server.url,
            "tls-server-name": server.name,
            "insecure-skip-tls-verify": not server.verify,
            "certificate-authority-data": authorities,
            "proxy-url": server.proxy,
            "config": server.extension,
        }
        spec["cluster"] = {key: value for key, value in cluster.items() if value}
    return json.dumps({"apiVersion": plugin.version, "kind": "ExecCredential", "spec": spec})


def _run(plugin: Plugin, environ: dict[str, str]) -> bytes:
    shutdown.check()
    try:
        program = sh.Command(plugin.command, environ.get("PATH", os.defpath).split(os.pathsep))
    except sh.CommandNotFound:
        hint = _readable(plugin.hint, plugin) or "install it, or use a kubeconfig with a token"
        raise UsageError(f"the kubeconfig's exec plugin {plugin.command!r} is not installed", hint=hint) from None
    if sys.version_info >= (3, 12):
        warnings.filterwarnings("ignore", r"This process .* is multi-threaded, use of fork", DeprecationWarning)
    try:
        with shutdown.unheard():
            running = program(
                *plugin.args, _env=environ, _in="", _bg=True, _bg_exc=False, _tty_in=False, _tty_out=False,
                _truncate_exc=False, _timeout=SECONDS, _new_session=True, _preexec_fn=shutdown.hear, _return_cmd=True,
            )  # fmt: skip
        with shutdown.ending(lambda: send(running, "SIGTERM")):
            running = running.wait()
        return bytes(running.stdout)
    except sh.TimeoutException:
        raise _useless(plugin, f"took more than {SECONDS} seconds") from None
    except sh.ErrorReturnCode as error:  # its text has all arguments
        shutdown.check()
        said = _readable(error.stderr.decode("utf-8", "replace"), plugin)
        raise _useless(plugin, f"failed ({error.exit_code}){': ' if said else ''}{said}") from None
    except OSError as error:
        raise _useless(plugin, f"cannot be run: {error.strerror}") from None
    except ValueError:  # sh had no word from the new process
        raise _useless(plugin, "was killed before it could begin") from None


def _readable(text: str, plugin: Plugin) -> str:
    """Return a plugin's message without the secrets that the kubeconfig gives to it."""
    for _, value in plugin.env:
        if len(value) >= _SECRETIVE:
            text = text.replace(value, "***")
    return one_line(text)[:_SHOWN]


def _useless(plugin: Plugin, what: str) -> SourceAccessError:
    return SourceAccessError(
        f"the kubeconfig's exec plugin {plugin.command!r} {what}", hint="run it by hand: kubectl auth whoami"
    )
