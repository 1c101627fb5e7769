"""Access to the Kubernetes API, with the pod's service account or with a kubeconfig.

As in kubectl, a kubeconfig takes precedence over the service account. Tokens are read again for
every request, because they may be renewed during a run. Copies of keys are readable only by this
user, and are deleted at the end.

An exec plugin (`aws eks get-token`, `kubelogin`, …) prints credentials in the format of
client.authentication.k8s.io, v1 or v1beta1. It runs without a shell or a prompt, and its stdout is
never shown.
"""

from __future__ import annotations

import json
import os
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Any

import sh

from task import shutdown
from task.errors import SourceAccessError, UsageError
from task.files import check_file, read_file, read_text, remove_folder, temporary_folder
from task.http import Http, Limits
from task.kubernetes.kubeconfig import (
    Kubeconfig,
    Plugin,
    Server,
    User,
    kubeconfig,
)
from task.kubernetes.pod import SERVICE_ACCOUNT, in_cluster
from task.plain_data import parsed_json
from task.processes import child_environment, run_login_program
from task.secret import Secret
from task.text import one_line
from task.urls import is_loopback, split

_CHOICES = "run it in a pod with a service account, or set KUBECONFIG"
SECONDS = 120  # timeout for one plugin call, in seconds
_SHOWN = 500  # maximum characters of a plugin's own error message to show
_SECRETIVE = 6  # values of variables are masked if they have at least this many characters


def cluster_access(
    environ: Mapping[str, str],
    path: str = "",
    context: str = "",
    service_account: str = SERVICE_ACCOUNT,
) -> ClusterAccess:
    """Return access to the cluster in a kubeconfig: the one at `path`, or else in KUBECONFIG, or
    else in ~/.kube/config. If there is no kubeconfig, use the pod's service account.

    `context` is the kubeconfig's context; "" means the current one. `service_account` is the folder
    with the account's files. No server is contacted. Raises `UsageError` if there is neither a
    kubeconfig nor a service account.
    """
    config = kubeconfig(environ, path, context)
    if config:
        return ClusterAccess(config, environ)
    if in_cluster(environ, service_account):
        return ClusterAccess(_pod_access(environ, service_account), environ)
    if path:  # the file exists, because otherwise `kubeconfig` would have raised an error
        raise UsageError(
            f"the kubeconfig {path!r} has no context",
            hint="use the kubeconfig that kubectl uses",
        )
    if environ.get("KUBECONFIG"):
        raise UsageError("none of the files in KUBECONFIG exist", hint=_CHOICES)
    raise UsageError(
        "no cluster is available: no kubeconfig, and no service account",
        hint=_CHOICES,
    )


def _pod_access(environ: Mapping[str, str], folder: str) -> Kubeconfig:
    """Return access with the pod's own service account. `folder` contains the service account's
    files.
    """
    host = environ["KUBERNETES_SERVICE_HOST"]
    port = environ.get("KUBERNETES_SERVICE_PORT") or "443"
    if ":" in host and not host.startswith("["):  # an IPv6 address
        host = f"[{host}]"
    ca_file = os.path.join(folder, "ca.crt")
    if not os.path.exists(ca_file):
        ca_file = ""  # trust the usual certificate authorities
    server = Server(f"https://{host}:{port}", ca_file)
    return Kubeconfig(
        "the pod's service account",
        server,
        User(token_file=os.path.join(folder, "token")),
    )


class ClusterAccess:
    """An API server and our identity. Thread-safe."""

    def __init__(self, config: Kubeconfig, environ: Mapping[str, str]) -> None:
        self.base = config.server.url
        self.who = config.who
        self._server = config.server
        self._user = config.user
        self._environ = environ
        self._lock = Lock()
        self._folder = ""  # for copies of keys; created when needed
        self._http: Http | None = None
        self._plugin: _PluginLogin | None = None
        if config.user.plugin:
            self._plugin = _PluginLogin(config.user.plugin, config.server, environ)
        self._certificate = ""  # the plugin's certificate, as used by the client

    def http(
        self,
        limits: Limits = Limits(),
        log: Callable[[str], None] = lambda _line: None,
    ) -> Http:
        """Return the HTTP client. It is replaced if the exec plugin has returned a different client
        certificate.

        Raises `UsageError` and `SourceAccessError`.
        """
        with self._lock:
            credential = self._plugin.credential() if self._plugin else Credential()
            if self._http is None or credential.certificate != self._certificate:
                self._close_client()
                self._certificate = credential.certificate
                self._http = self._client(self._identity(credential), limits, log)
            return self._http

    def login(self) -> Mapping[str, str]:
        """Return the headers that authenticate a request: a bearer token, or else the user and
        password.

        As in kubectl, neither is sent over plain HTTP, except to this machine.
        """
        user = self._user
        headers = dict(user.headers)
        is_https = self.base.startswith("https://")
        if not is_https and not is_loopback(split(self.base).host):
            return headers
        token = self._read_token_file() or user.token.reveal().strip()
        if self._plugin and not token:
            token = self._plugin.credential().token.reveal()
        if token:
            return {"Authorization": f"Bearer {token}", **headers}
        if user.name or user.password:
            name_and_password = f"{user.name}:{user.password.reveal()}".encode()
            encoded = b64encode(name_and_password).decode()
            return {"Authorization": f"Basic {encoded}", **headers}
        return headers

    def renew(self) -> bool:
        """Discard a plugin's credential after the server rejected it. Return whether the next
        request may use a new credential, from the plugin or the token file.
        """
        if self._plugin:
            self._plugin.expire()
        return bool(self._plugin or self._user.token_file)

    def close(self) -> None:
        """Close the connections, and delete the copies of keys."""
        with self._lock:
            self._close_client()
            if self._folder:
                remove_folder(self._folder)
            self._folder = ""

    def _close_client(self) -> None:
        """Close and discard the client."""
        if self._http:
            self._http.close()
        self._http = None

    def _client(
        self,
        identity: tuple[str, str] | None,
        limits: Limits,
        log: Callable[[str], None],
    ) -> Http:
        """Return a new HTTP client. `identity` contains the paths of the client certificate and
        key, or is None if there are none.

        Raises `UsageError` for an unreadable file.
        """
        server = self._server
        ca_file = server.ca_file
        if server.ca_data:
            ca_file = self._write_copy("ca.pem", server.ca_data)
        paths = [ca_file] if ca_file else []
        if identity:
            paths += identity
        for path in paths:
            try:
                check_file(path)
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or "it is not a path"
                raise UsageError(
                    f"the kubeconfig refers to {path!r}, which cannot be read: {why}",
                    hint="use a file that this step can read",
                ) from None
        return Http(
            server.url,
            login=self.login,
            ca_file=ca_file,
            verify=server.verify,
            certificate=identity,
            proxy=server.proxy,
            server_name=server.name,
            limits=limits,
            log=log,
        )

    def _identity(self, from_plugin: Credential) -> tuple[str, str] | None:
        """Return the paths of the client certificate and key, or None if there are none.

        `from_plugin` is the exec plugin's credential, which is empty without a plugin. Its
        certificate takes precedence over the kubeconfig's. Raises `UsageError` if only one of the
        two files is set.
        """
        user = self._user
        certificate_file = user.certificate_file
        key_file = user.key_file
        # The `requests` library needs files, so certificates and keys that are given as text are
        # written to files.
        source = from_plugin if from_plugin.certificate else user
        if source.certificate:
            certificate_file = self._write_copy("client.pem", source.certificate)
        if source.key:
            key_file = self._write_copy("client.key", source.key.reveal())

        if not certificate_file and not key_file:
            return None
        if not certificate_file or not key_file:
            raise UsageError(
                "the kubeconfig has a client certificate without its key, or a key without its"
                " certificate",
                hint="add the missing part",
            )
        return certificate_file, key_file

    def _write_copy(self, name: str, text: str) -> str:
        """Write the text to a file that only this user can read, and return the file's path."""
        if not self._folder:
            # a private folder in the temporary folder
            self._folder = temporary_folder(self._environ.get("TMPDIR") or "/tmp")  # noqa: S108
        path = os.path.join(self._folder, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o600), "w") as file:
            file.write(text)
        return path

    def _read_token_file(self) -> str:
        """Return the token in the kubeconfig's token file, or "" if no file is configured.

        If the file cannot be read, return "" if the kubeconfig also contains the token itself, and
        otherwise raise `SourceAccessError`.
        """
        if not self._user.token_file:
            return ""
        try:
            return read_text(self._user.token_file).strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._user.token:
                return ""
            why = getattr(error, "strerror", "") or "not text"
            raise SourceAccessError(
                f"cannot read the token {self._user.token_file!r}: {why}",
                hint="check that it is mounted",
            ) from None


class _PluginLogin:
    """An exec plugin's credential, cached until it expires."""

    def __init__(self, plugin: Plugin, server: Server, environ: Mapping[str, str]) -> None:
        self._plugin = plugin
        self._server = server
        self._environ = environ
        self._lock = Lock()
        self._credential: Credential | None = None

    def credential(self) -> Credential:
        """Return the current credential. Run the plugin if there is none, or if it has expired."""
        with self._lock:
            credential = self._credential
            has_expired = (
                credential is not None
                and credential.expires != 0
                and time.time() >= credential.expires
            )
            if credential is None or has_expired:
                credential = plugin_credential(self._plugin, self._server, self._environ)
                self._credential = credential
            return credential

    def expire(self) -> None:
        """Discard the credential, because the server no longer accepts it."""
        with self._lock:
            self._credential = None


@dataclass(frozen=True)
class Credential:
    """A plugin's credential."""

    token: Secret = Secret("")
    certificate: str = ""
    key: Secret = Secret("")
    expires: float = 0.0  # Unix time; 0 if the plugin does not set it


def plugin_credential(plugin: Plugin, server: Server, environ: Mapping[str, str]) -> Credential:
    """Run the exec plugin, and return the credential that it prints as an `ExecCredential` in JSON.

    Raises `UsageError` if it is not installed, and `SourceAccessError` if it fails.
    """
    plugin_environ = {
        **child_environment(environ, (plugin.command, *plugin.args)),
        **dict(plugin.env),
        "KUBERNETES_EXEC_INFO": _exec_info(plugin, server),
    }
    output = _run_plugin(plugin, plugin_environ)
    try:
        response = parsed_json(output)
        status = response["status"]
        version = response.get("apiVersion")
        token = status.get("token") or ""
        certificate = status.get("clientCertificateData") or ""
        key = status.get("clientKeyData") or ""
        expiration = status.get("expirationTimestamp")
        expires = datetime.fromisoformat(expiration).timestamp() if expiration else 0.0
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _plugin_error(plugin, "did not return an ExecCredential with a status") from None
    if version != plugin.version:
        raise _plugin_error(
            plugin,
            f"is configured for {plugin.version}, but returned another version",
        )
    is_incomplete_pair = bool(certificate) != bool(key)
    is_empty = not token and not certificate
    if is_incomplete_pair or is_empty:
        raise _plugin_error(plugin, "returned neither a token nor a certificate with its key")
    return Credential(
        token=Secret(token), certificate=certificate, key=Secret(key), expires=expires
    )


def _exec_info(plugin: Plugin, server: Server) -> str:
    """Return the request that the plugin reads from its environment: an `ExecCredential` in JSON.

    It describes the cluster only if the kubeconfig requests that (`provideClusterInfo`).
    """
    spec: dict[str, Any] = {"interactive": False}
    if plugin.tell_cluster:
        ca_data = server.ca_data.encode()
        if server.ca_file and not ca_data:
            with suppress(OSError):  # the connection will report the problem
                ca_data = read_file(server.ca_file)
        cluster = {
            "server": server.url,
            "tls-server-name": server.name,
            "insecure-skip-tls-verify": not server.verify,
            "certificate-authority-data": b64encode(ca_data).decode(),
            "proxy-url": server.proxy,
            "config": server.extension,
        }
        spec["cluster"] = {key: value for key, value in cluster.items() if value}
    return json.dumps(
        {
            "apiVersion": plugin.version,
            "kind": "ExecCredential",
            "spec": spec,
        }
    )


def _run_plugin(plugin: Plugin, environ: dict[str, str]) -> bytes:
    """Return the plugin's stdout. Raises `UsageError` if it is not installed, and
    `SourceAccessError` if it fails.
    """
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    try:
        program = sh.Command(plugin.command, folders)
    except sh.CommandNotFound:
        hint = (
            _readable_message(plugin.hint, plugin) or "install it, or use a kubeconfig with a token"
        )
        raise UsageError(
            f"the kubeconfig's exec plugin {plugin.command!r} is not installed",
            hint=hint,
        ) from None
    try:
        return bytes(run_login_program(program, plugin.args, environ, SECONDS).stdout)
    except sh.TimeoutException:
        raise _plugin_error(plugin, f"took more than {SECONDS} seconds") from None
    except sh.ErrorReturnCode as error:  # the error's own message contains all arguments
        shutdown.check()  # raises an error if a signal has arrived
        message = _readable_message(error.stderr.decode("utf-8", "replace"), plugin)
        details = f": {message}" if message else ""
        raise _plugin_error(plugin, f"failed ({error.exit_code}){details}") from None
    except OSError as error:
        raise _plugin_error(plugin, f"cannot be run: {error.strerror}") from None
    except ValueError:  # `sh` received no report from the new process
        raise _plugin_error(plugin, "was killed before it could start") from None


def _readable_message(text: str, plugin: Plugin) -> str:
    """Return a plugin's message, with the secrets that the kubeconfig passes to it masked."""
    for _, value in plugin.env:
        if len(value) >= _SECRETIVE:
            text = text.replace(value, "***")
    return one_line(text)[:_SHOWN]


def _plugin_error(plugin: Plugin, problem: str) -> SourceAccessError:
    """Return an error about a plugin. `problem` says what went wrong, such as "failed"."""
    return SourceAccessError(
        f"the kubeconfig's exec plugin {plugin.command!r} {problem}",
        hint="run it by hand: kubectl auth whoami",
    )
