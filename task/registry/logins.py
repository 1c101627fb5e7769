"""Finds a registry's login in an annotation or registries.conf, in options, or in Docker's config
files.

A configured source that is unusable causes an error; no other source is tried instead. Application
owners are not trusted, so annotations must not refer to secrets in other namespaces, or to
variables and scripts that the pipeline has not allowed. Docker's credential helpers and `ext:`
scripts run without a shell.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Mapping
from threading import Lock

import sh

from task import shutdown
from task.annotations.keys import CredentialSource, parse_credential_source
from task.errors import (
    AnnotationError,
    Malformed,
    RegistryAccessError,
    RegistryDownError,
    RegistryError,
)
from task.plain_data import parsed_json
from task.processes import child_environment, run_login_program
from task.registry.docker_config import (
    HUB,
    DockerConfig,
    RegistryLogin,
    best_key,
    config_files,
    normal,
    parse_docker_config,
)
from task.secret import Secret

# (namespace, name) → the values of a secret in the cluster. Raises `LookupError` if the secret is
# missing, and `Malformed` if it belongs to Argo CD, because a cluster's token must never be sent to
# a registry.
Secrets = Callable[[str, str], Mapping[str, bytes]]
_ANNOTATION = "pull-secret"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_PATIENCE = {"helper": 30, "script": 10}  # time limits in seconds; 10 is also AIU's limit
# what `docker login`, and therefore credential helpers, call Docker Hub
_HUB_SERVER = "https://index.docker.io/v1/"
_NO_LOGIN = b"credentials not found"  # printed by all helpers based on docker-credential-helpers
# the username with which a helper returns an identity token as the secret
_TOKEN = "<token>"  # noqa: S105 - a username
_NEVER_IN_A_USER = frozenset(" \"'{}[]")


class Logins:
    """All of a run's logins. Thread-safe."""

    def __init__(
        self,
        environ: Mapping[str, str],
        given: Mapping[str, RegistryLogin] | None = None,
        secret: Secrets | None = None,
        *,
        allow_env: Collection[str] = (),
        allow_exec: bool = False,
        namespace: str = "",
    ) -> None:
        """`given` contains the logins from options, keyed by registry or repository (see `normal`).

        Annotations may refer to the variables in `allow_env`, and to the pull secrets in the
        control plane's `namespace`. registries.conf may refer to any variable. With `allow_exec`,
        both annotations and registries.conf may refer to scripts.
        """
        self._environ = environ
        self._option_logins = given or {}
        self._secret = secret
        self._allow_env = allow_env
        self._allow_exec = allow_exec
        self._namespace = namespace
        self._lock = Lock()
        # the logins found so far, each with its expiry time
        self._cache: dict[object, tuple[RegistryLogin | None, float]] = {}
        self._config_files: tuple[DockerConfig, ...] | None = None  # None until read
        self._from_helpers: dict[tuple[str, str], RegistryLogin | None] = {}  # by (helper, server)

    def of_annotation(
        self,
        text: str,
        namespace: str,
        host: str,
        repository: str,
    ) -> RegistryLogin | None:
        """Return the login for the repository at `host` from an Application's `pull-secret`
        annotation, whose value is `text`. `namespace` is the Application's.

        Raises `RegistryError` and its subclasses, or `AnnotationError` for a secret that the
        annotation is not allowed to use.
        """
        try:
            source = parse_credential_source(text)
        except Malformed as problem:
            raise RegistryError(f"pull-secret: {problem.message}", hint=problem.hint) from None
        self._check_allowed(source, namespace)
        return self._of_source(source, _ANNOTATION, 0, host, repository)

    def of_conf(
        self,
        source: CredentialSource,
        expire: float,
        host: str,
        repository: str,
    ) -> RegistryLogin | None:
        """Return the login for the repository at `host` from a registries.conf entry's `source`.

        The login is looked up again after `expire` seconds, because ECR tokens expire.
        """
        return self._of_source(source, "credentials in registries.conf", expire, host, repository)

    def of_host(self, host: str, repository: str) -> RegistryLogin | None:
        """Return the login for a registry from options or Docker's config files, or None if there
        is none.
        """
        return self._from_cache((host, repository), 0, lambda: self._from_options(host, repository))

    def _of_source(
        self,
        source: CredentialSource,
        origin: str,
        expire: float,
        host: str,
        repository: str,
    ) -> RegistryLogin | None:
        """Return the login for the repository at `host` from a source (a secret, a variable, or a
        script).

        The login is cached for `expire` seconds (0: for the whole run). `origin` describes where
        the source is configured, for messages.
        """
        if source.kind == "ext" and not self._allow_exec:
            raise RegistryError(
                "ext: credentials need --allow-exec",
                hint="allow it, or use a secret or a variable",
            )
        # A pull secret may contain several logins, and a source for a particular registry is
        # ignored for all others. In all other cases, the login does not depend on the repository.
        depends_on_repository = source.kind == "pullsecret" or bool(source.registry)
        key = (source, host, repository) if depends_on_repository else (source,)
        return self._from_cache(
            key, expire, lambda: self._from_source(source, origin, host, repository)
        )

    def _from_cache(
        self,
        key: object,
        expire: float,
        find: Callable[[], RegistryLogin | None],
    ) -> RegistryLogin | None:
        """Return the cached login for this key. If there is none, call `find`, and cache the result
        for `expire` seconds or, if `expire` is 0, for the whole run.
        """
        with self._lock:
            login, valid_until = self._cache.get(key, (None, float("-inf")))
            if valid_until < time.monotonic():
                login = find()
                lifetime = expire or float("inf")
                valid_until = time.monotonic() + lifetime
                self._cache[key] = (login, valid_until)
            return login

    def _check_allowed(self, source: CredentialSource, namespace: str) -> None:
        """Raise `AnnotationError` or `RegistryError` if the source may not be used by the owner of
        an Application in this namespace.
        """
        if source.kind in ("secret", "pullsecret"):
            # AIU v1.3 also rejects secrets in other namespaces, whereas AIU v0 uses any secret that
            # its own account can read. A pull secret's logins are sent only to the registries for
            # which they are intended, but the value of a secret's field would be sent to any
            # registry chosen by the Application's author.
            allowed_namespaces = [namespace]
            if source.kind == "pullsecret":
                allowed_namespaces.append(self._namespace)
            if source.namespace not in allowed_namespaces:
                raise AnnotationError(
                    f"pull-secret refers to a secret in namespace {source.namespace}, but the"
                    f" Application is in {namespace}",
                    hint=(
                        "use a secret in the Application's own namespace, or a pullsecret in Argo"
                        " CD's"
                    ),
                )
        if source.kind == "env" and source.env not in self._allow_env:
            raise RegistryError(
                "pull-secret: annotations are not allowed to use the variable"
                f" {source.env[:100]!r}",
                hint="allow it with --allow-env; registries.conf can use any variable",
            )

    def _from_source(
        self,
        source: CredentialSource,
        origin: str,
        host: str,
        repository: str,
    ) -> RegistryLogin | None:
        """Return the login from a source (a secret, a variable, or a script). `origin` describes
        where the source is configured, for messages.

        If the source is for a different registry, return the login from options or Docker's config
        files, or None if there is none.
        """
        if source.registry:  # the source applies only to this registry
            matching_key = best_key([normal(source.registry)], host, repository)
            if matching_key is None:
                return self._from_options(host, repository)
        if source.kind == "env":
            text = self._environ.get(source.env, "")
            return _login_in(text, f"{origin}, variable {source.env}")
        if source.kind == "ext":
            text = script(source.script, self._environ)
            return _login_in(text, f"{origin}, script {source.script}")
        return self._from_secret(source, origin, host, repository)

    def _from_secret(
        self,
        source: CredentialSource,
        origin: str,
        host: str,
        repository: str,
    ) -> RegistryLogin:
        """Return the login from a secret in the cluster: either from a field that contains
        `user:password`, or from a pull secret, which contains a Docker config. `origin` describes
        where the secret is configured, for messages.
        """
        name = f"secret {source.namespace}/{source.name}"
        data = self._secret_data(source, origin, name)
        raw = data.get(source.field)
        if raw is None and source.kind == "pullsecret":
            raw = data.get(".dockercfg")  # the older format
        if raw is None:
            raise RegistryAccessError(
                f"{origin}: {name} has no field {source.field}",
                hint="add the field to the secret, or use another secret",
            )
        text = raw.decode("utf-8", "replace")
        text_origin = f"{origin}, {name}"
        if source.kind == "secret":
            return _login_in(text, text_origin)

        try:
            config = parse_docker_config(text, text_origin)
        except Malformed as problem:
            raise RegistryAccessError(
                f"{text_origin} {problem.message}",
                hint=problem.hint,
            ) from None
        key = best_key(config.logins, host, repository)
        if key is None:
            message = f"{text_origin} has no credentials for {host}"
            raise RegistryAccessError(message, hint="add them, or use another secret")
        return config.logins[key]

    def _secret_data(self, source: CredentialSource, origin: str, name: str) -> Mapping[str, bytes]:
        """Return a cluster secret's fields. `origin` and `name` are used in messages."""
        if self._secret is None:
            raise RegistryError(
                f"{origin} refers to {name}, but no cluster is available",
                hint=(
                    "read all Applications from the cluster, or set the credentials in Docker's"
                    " config file or with options"
                ),
            )
        try:
            return self._secret(source.namespace, source.name)
        except LookupError:
            raise RegistryAccessError(
                f"{origin}: {name} not found",
                hint="create it, or use another secret",
            ) from None
        except Malformed as refused:  # the secret belongs to Argo CD
            error_type = AnnotationError if origin == _ANNOTATION else RegistryError
            raise error_type(f"{origin}: {refused.message}", hint=refused.hint) from None

    def _from_options(self, host: str, repository: str) -> RegistryLogin | None:
        """Return the login from options or Docker's config files, or None if there is none."""
        key = best_key(self._option_logins, host, repository)
        if key:
            return self._option_logins[key]
        if self._config_files is None:
            self._config_files = config_files(self._environ)
        for config in self._config_files:
            login = self._from_file(config, host, repository)
            if login is not None:
                return login
        return None

    def _from_file(self, config: DockerConfig, host: str, repository: str) -> RegistryLogin | None:
        """Return the login from one of Docker's config files, or None if there is none.

        The login may be in the file itself, or be provided by a credential helper (a program):
        either the registry's own (`credHelpers`), or the one for all other registries
        (`credsStore`).
        """
        login_key = best_key(config.logins, host, repository)
        helper_key = best_key(config.helpers, host, repository)
        # the longer key wins; if they have the same length, the helper wins
        if helper_key and len(helper_key) >= len(login_key or ""):
            return self._from_helper(config.helpers[helper_key], helper_key, needed=True)
        if login_key:
            return config.logins[login_key]
        if config.store:
            return self._from_helper(config.store, normal(host), needed=False)
        return None

    def _from_helper(self, name: str, registry: str, *, needed: bool) -> RegistryLogin | None:
        """Return the login for a registry from the credential helper `name`, or None if the helper
        has none.

        A helper is run only once per registry, because it may take seconds (ECR's helper queries
        AWS). A helper that is not `needed` may be missing.
        """
        server = _HUB_SERVER if registry == HUB else registry
        if (name, server) not in self._from_helpers:
            self._from_helpers[name, server] = helper(name, server, self._environ, needed=needed)
        return self._from_helpers[name, server]


def _login_in(text: str, origin: str) -> RegistryLogin:
    """Split `user:password` at the first colon, and return the login. `origin` describes where the
    text comes from, for messages.

    Raises `RegistryAccessError` for other text.
    """
    user, colon, password = text.strip().partition(":")
    is_complete = bool(user and colon and password)
    # JSON and PEM also contain colons. Anything that was never meant to be credentials must not be
    # sent to a registry.
    looks_like_a_user = user.isprintable() and _NEVER_IN_A_USER.isdisjoint(user)
    if not is_complete or not looks_like_a_user:
        raise RegistryAccessError(
            f"{origin}: does not contain user:password", hint="use the form user:password"
        )
    return RegistryLogin(user, Secret(password), origin=origin)


def helper(
    name: str,
    server: str,
    environ: Mapping[str, str],
    *,
    needed: bool,
) -> RegistryLogin | None:
    """Return the login for the registry `server` from a credential helper (the program
    `docker-credential-<name>`), or None if the helper has none.

    A helper that is not `needed` (a `credsStore`, which applies to all registries) may be missing,
    because a config file copied from a laptop names `desktop` or `osxkeychain`. Raises
    `RegistryError` and its subclasses.
    """
    if not _NAME.fullmatch(name):
        message = f"{name[:100]!r} is not a valid credential helper name"
        raise RegistryAccessError(message, hint="check Docker's config file")
    program = f"docker-credential-{name}"
    exit_code, stdout, stderr = _run("helper", program, ("get",), server, environ)
    if exit_code is None:
        if not needed:
            return None
        raise RegistryAccessError(
            f"{program} is not installed",
            hint="install it, or set the credentials another way",
        )
    if exit_code != 0:
        # the helper works, but it has no login for this server
        if _NO_LOGIN in (stdout + stderr).lower():
            return None
        message = f"{program} did not return credentials for {server} (exit code {exit_code})"
        raise RegistryAccessError(message, hint="run it by hand to see why")

    user, secret = _user_and_secret(stdout, program)
    if not secret:
        return None
    if user == _TOKEN:  # with this username, the secret is an identity token
        return RegistryLogin(identity=Secret(secret), origin=program)
    return RegistryLogin(user, Secret(secret), origin=program)


def _user_and_secret(stdout: bytes, program: str) -> tuple[str, str]:
    """Return the username and secret from a credential helper's output, each "" if missing.

    Raises `RegistryAccessError` if the output is not in the expected format.
    """
    try:
        data = parsed_json(stdout)
        user = data.get("Username") or ""
        secret = data.get("Secret") or ""
    except (ValueError, AttributeError):
        user = None
        secret = None
    if not isinstance(user, str) or not isinstance(secret, str):
        raise RegistryAccessError(
            f"{program} did not return credentials", hint="run it by hand to see why"
        )
    return user, secret


def script(path: str, environ: Mapping[str, str]) -> str:
    """Run the script in `ext:<path>`, and return its output, which should be `user:password`.

    Raises `RegistryError` and its subclasses, for example if the script fails.
    """
    if not os.path.isabs(path) or os.path.normpath(path) != path:
        raise RegistryError(
            f"ext:{path[:200]} is not an absolute path",
            hint="use ext:/path/to/script",
        )
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise RegistryAccessError(
            f"ext:{path} is not an executable file",
            hint="mount the file, and make it executable",
        )
    exit_code, stdout, _stderr = _run("script", path, (), "", environ)
    if exit_code != 0:
        raise RegistryAccessError(
            f"ext:{path} failed (exit code {exit_code})",
            hint="run it by hand to see why",
        )
    return stdout.decode("utf-8", "replace").strip()


def _run(
    kind: str,
    name: str,
    args: tuple[str, ...],
    stdin: str,
    environ: Mapping[str, str],
) -> tuple[int | None, bytes, bytes]:
    """Run a program, and return its exit code (None if there is no such program), stdout, and
    stderr.

    `kind` is "helper" or "script", which have different time limits. `name` is the program's name
    or path. Error messages never quote the program's output, which may contain secrets.
    """
    # A relative folder in PATH would be below the working directory, which may be an untrusted
    # checkout.
    path_folders = environ.get("PATH", "").split(os.pathsep)
    absolute_folders = [folder for folder in path_folders if os.path.isabs(folder)]
    # for a script, `name` is already a path
    search_folders = None if os.path.isabs(name) else absolute_folders
    try:
        program = sh.Command(name, search_folders)
    except sh.CommandNotFound:
        return None, b"", b""

    try:
        ended = run_login_program(
            program,
            args,
            child_environment(environ, (name,)),
            _PATIENCE[kind],
            stdin,
            codes=tuple(range(256)),  # every exit code is left to the caller
        )
        return ended.exit_code, bytes(ended.stdout), bytes(ended.stderr)
    except sh.TimeoutException:
        raise RegistryDownError(
            f"{name} did not return credentials within {_PATIENCE[kind]} seconds",
            hint="run it again, or run the program by hand to see why",
        ) from None
    except ValueError:  # sh received no report from the new process
        raise RegistryDownError(
            f"{name} was killed before it could start",
            hint="run it again",
        ) from None
    # the error's own message is not used, because sh includes the command line and the output in it
    except (sh.ErrorReturnCode, OSError) as error:
        shutdown.check()
        raise RegistryAccessError(
            f"{name} failed ({type(error).__name__})",
            hint="run it by hand to see why",
        ) from None
