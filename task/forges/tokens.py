"""The token for the API of a forge (a Git host). It is set only by the pipeline's author, never by
an annotation.

An Application's owner chooses the repository's URL, so every token has a scope: a web address
prefix. A token is never sent outside its scope, and over plain http only if the scope is http.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from task.ci_systems import SYSTEMS
from task.errors import CredentialsError, UsageError
from task.files import read_text
from task.forges.client import ForgeAddress, ForgeToken
from task.forges.places import FORGES, Known, servers_of
from task.git.environment import Login
from task.secret import Secret
from task.urls import origin, split

VARIABLE = "IMAGE_UPDATE_FORGE_TOKEN"
OPTION = "--forge-token-file"
SHOW = (
    "specify its Git host: --forge github=https://github.com, or --git-credentials-url"
    " https://github.com/acme/"
)


class Tokens:
    """A run's API tokens. Invalid settings raise `UsageError` immediately."""

    def __init__(
        self,
        environ: Mapping[str, str],
        logins: Callable[[str], Sequence[Login]] = lambda _url: (),
        *,
        file: str = "",  # --forge-token-file
        user: str = "",  # --forge-username: Bitbucket requires it with some tokens
        forge: Known | None = None,  # --forge
        scope: tuple[str, ...] = (),  # --git-credentials-url
    ) -> None:
        """Read the token that the user has set, from a variable or a file, and check that it has a
        scope: the web addresses that it may be sent to.

        `logins` returns Git's credentials for a URL, including an App's token (`Access.logins`).
        """
        self._user = user
        self._logins = logins
        self._environ = environ
        self._has_forge_url = forge is not None and forge.root != ""
        self._scope = _token_scope(forge, scope, environ)

        self._secret = _checked_token(environ.get(VARIABLE, ""), VARIABLE)
        self._source = VARIABLE
        if self._secret and file:
            raise UsageError(f"{VARIABLE} and {OPTION} are both set", hint="set only one of them")
        if file:
            self._secret = _read_token(file)
            self._source = OPTION
        if self._secret and not self._scope:
            raise UsageError(
                f"{self._source}: a token is set, but not the Git host it is for",
                hint=SHOW,
            )

    def of_the_job(self, place: ForgeAddress, what: str) -> ForgeToken:
        """Return the token for the CI job's own repository: the job's own token, else the result of
        `of`. `what` is the action that requires the token, such as "a comment".

        A token set by the user is often only valid for the GitOps repository.
        """
        return self._ci_job_token(place) or self.of(place, what)

    def of(self, place: ForgeAddress, what: str = "a pull request") -> ForgeToken:
        """Return the API token for the repository at that address: the user's token, else Git's
        credentials, else the CI job's own token.

        `what` is the action that requires the token. Raises `CredentialsError` if there is none.
        """
        if self._secret and self._in_scope(place):
            return ForgeToken(self._secret, self._user)
        for login in self._logins(place.web):
            if login.password and covers(login.prefix, place.web):
                # A username set by the user takes precedence: Bitbucket Cloud's API requires an
                # email address, but git requires a fixed name.
                return ForgeToken(login.password, self._user or login.user)
        ci_token = self._ci_job_token(place)
        if ci_token:
            return ci_token
        raise self._no_token_error(place, what)

    def _in_scope(self, place: ForgeAddress) -> bool:
        """Return whether the token set by the user may be sent to that address."""
        return any(covers(prefix, place.web) for prefix in self._scope)

    def _no_token_error(self, place: ForgeAddress, what: str) -> CredentialsError:
        """Return the error for an address that has no token. The hint lists the options that would
        set one.
        """
        address = origin(place.web)
        scope_option = f"--git-credentials-url {address}/"
        if self._has_forge_url:
            scope_option = f"--forge {place.forge}={address}"

        if self._secret:
            scope = " and ".join(self._scope)
            return CredentialsError(
                f"the API token ({self._source}) was not sent to {place.host}: it is for {scope}",
                hint=f"if this Git host is allowed to receive the token, pass {scope_option}",
            )

        hint = f"set {VARIABLE} or pass {OPTION}"
        if not self._in_scope(place):
            hint = f"{hint}, and {scope_option}"
        return CredentialsError(f"no API token for {place.host}, which {what} requires", hint=hint)

    def _ci_job_token(self, place: ForgeAddress) -> ForgeToken | None:
        """Return the CI job's own token, or None if the CI system has none for this address."""
        for system in SYSTEMS:
            if not system.token:
                continue
            token_variable, server_variable = system.token
            secret = _checked_token(self._environ.get(token_variable, ""), token_variable)
            server = self._environ.get(server_variable, "")
            if secret and covers(server, place.web):
                return ForgeToken(secret)
        return None


def covers(prefix: str, web: str) -> bool:
    """Return whether the web address `web` is within the scope `prefix`: it has the same scheme and
    host, and its path begins with the path of the scope.

    `https://github.com/acme` covers `https://github.com/acme/web`, but not
    `https://github.com/acme-2`.
    """
    prefix = prefix.strip().rstrip("/")
    if not prefix.startswith(("https://", "http://")):
        return False
    if origin(prefix) != origin(web):
        return False
    scope_path = split(prefix).path.strip("/")
    path = split(web).path.strip("/")
    return not scope_path or path == scope_path or path.startswith(f"{scope_path}/")


def _token_scope(
    forge: Known | None,
    credential_urls: tuple[str, ...],
    environ: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the web addresses to which the user's token may be sent.

    These are the address in `--forge`, else the URLs for Git's credentials, else the public hosts
    of the kind of forge in `--forge`, else the CI system's own server.
    """
    if forge is not None and forge.root:
        return (forge.root,)
    if credential_urls:
        return credential_urls
    if forge is not None:
        return tuple(f"https://{host}" for host in FORGES[forge.forge].hosts)
    return tuple(servers_of(environ).values())


def check_token_file(path: str) -> None:
    """Raise `UsageError` if the token file does not exist.

    The file is read later, because a pipe can be read only once.
    """
    try:
        os.stat(path)
    except OSError as error:
        raise _unreadable_file_error(path, error) from None


def _unreadable_file_error(path: str, error: OSError) -> UsageError:
    return UsageError(
        f"{OPTION}: cannot read {path!r}: {error.strerror}",
        hint="specify a readable file",
    )


def _read_token(path: str) -> Secret:
    """Return the token in a file. Raises `UsageError` if the file cannot be read, or does not
    contain a token.
    """
    try:
        text = read_text(path)
    except OSError as error:
        raise _unreadable_file_error(path, error) from None
    except UnicodeDecodeError:
        raise UsageError(f"{OPTION}: {path!r} is not text", hint="specify a text file") from None
    if not text.strip():
        raise UsageError(f"{OPTION}: {path!r} is empty", hint="put only the token in the file")
    return _checked_token(text, f"{OPTION} {path!r}")


def _checked_token(text: str, where: str) -> Secret:
    """Return the token from the `text` of a variable or file. `where` is the variable's or file's
    name, for messages.

    Raises `UsageError` unless the token is a single line of printable ASCII, because it is sent in
    a header.
    """
    text = text.strip()
    if not (text.isascii() and text.isprintable()):
        raise UsageError(
            f"{where} must be a single line of printable ASCII characters",
            hint="set it to the token only",
        )
    return Secret(text)
