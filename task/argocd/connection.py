"""How to reach Argo CD's API: options, `ARGOCD_OPTS`,
`ARGOCD_SERVER` and `ARGOCD_AUTH_TOKEN` → Connection.

Users of the `argocd` command already have these variables, so they have the same meaning here.
Messages never quote a value, because some are tokens.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from task.errors import Malformed
from task.secret import Secret

# the argocd command's other ways to connect
_ELSEWHERE = (
    "core",
    "port-forward",
    "port-forward-namespace",
)


@dataclass(frozen=True)
class Connection:
    """The API's address and the credentials. Fields that are not set are empty."""

    server: str = ""  # host[:port]; the given value may have a scheme and a path
    token: Secret = Secret("")
    token_file: str = ""
    plaintext: bool = False  # http
    insecure: bool = False  # certificates are not verified
    ca_file: str = ""
    certificate: str = ""  # files with a client certificate and its key
    key: str = ""
    root_path: str = ""
    headers: tuple[tuple[str, Secret], ...] = ()
    unused: tuple[str, ...] = ()  # options in ARGOCD_OPTS for a different way to connect

    @property
    def base(self) -> str:
        """The API's URL."""
        scheme = "http" if self.plaintext else "https"
        return f"{scheme}://{self.server}{self.root_path}"


def connection(given: Connection, environ: Mapping[str, str]) -> Connection:
    """Complete the options like the `argocd` command: from ARGOCD_OPTS, then from the variables.

    Raises `Malformed` if there is no server, or if two values contradict each other.
    """
    opts = parse_options(environ.get("ARGOCD_OPTS", ""))
    server = given.server or opts.server or environ.get("ARGOCD_SERVER", "").strip()
    token = given.token or opts.token or Secret(environ.get("ARGOCD_AUTH_TOKEN", "").strip())
    merged = Connection(
        server,
        token,
        given.token_file,
        given.plaintext or opts.plaintext,
        given.insecure or opts.insecure,
        given.ca_file or opts.ca_file,
        given.certificate or opts.certificate,
        given.key or opts.key,
        given.root_path or opts.root_path,
        (*opts.headers, *given.headers),
        opts.unused,
    )
    return _at_server(merged)


def _at_server(found: Connection) -> Connection:
    """Split the server into host, scheme, and path."""
    scheme, has_scheme, rest = found.server.partition("://")
    host, _, path = (rest if has_scheme else found.server).partition("/")
    if not host:
        unused = (
            f" (--{found.unused[0]} in ARGOCD_OPTS is not supported here)" if found.unused else ""
        )
        raise Malformed(
            f"no Argo CD server is set{unused}",
            "pass --argocd-server HOST[:PORT], or set ARGOCD_SERVER",
        )
    if "@" in host or not host.isprintable() or set(host) & set(" ?#\\"):
        raise Malformed(
            "the Argo CD server is not a valid host",
            "use HOST[:PORT]; the token belongs in ARGOCD_AUTH_TOKEN",
        )
    if has_scheme:
        _check_scheme(scheme.lower(), host, found)
    if bool(found.certificate) != bool(found.key):
        raise Malformed(
            "a client certificate needs its key",
            "set both --client-crt and --client-crt-key in ARGOCD_OPTS",
        )
    root = "/".join(part for part in (found.root_path or path).split("/") if part)
    return replace(found, server=host, root_path=f"/{root}" if root else "")


def _check_scheme(scheme: str, host: str, found: Connection) -> None:
    """Raise `Malformed` for a scheme that is not supported or sends the token unencrypted."""
    if scheme not in ("https", "http"):
        raise Malformed(f"{scheme!r} cannot be used to reach Argo CD's API", "use HOST[:PORT]")
    if scheme == "http" and not found.plaintext:
        raise Malformed(
            f"the Argo CD server {host} uses http://, which sends the token unencrypted",
            "use https://, or allow http:// with --argocd-plaintext",
        )


def parse_options(words: str) -> Connection:
    """Parse `ARGOCD_OPTS`, split as in a shell.

    Raises `Malformed` for values that the command also rejects.
    """
    values_by_name: dict[str, list[str]] = {}
    try:
        arguments = shlex.split(words)
    except ValueError:
        raise Malformed(
            "ARGOCD_OPTS has an unclosed quote",
            "use shell quoting",
        ) from None
    for name, value in _flags_in(arguments):
        values_by_name.setdefault(name, []).append(value)
    last = {name: values[-1] for name, values in values_by_name.items()}
    # Like the command, accept several headers in one value: one line of CSV.
    headers: list[str] = []
    for value in values_by_name.get("header", ()):
        for row in csv.reader([value], skipinitialspace=True):
            headers += row
    return Connection(
        server=last.get("server", ""),
        token=Secret(last.get("auth-token", "")),
        plaintext=last.get("plaintext") == "true",
        insecure=last.get("insecure") == "true",
        ca_file=last.get("server-crt", ""),
        certificate=last.get("client-crt", ""),
        key=last.get("client-crt-key", ""),
        root_path=last.get("grpc-web-root-path", ""),
        headers=parse_headers(headers),
        unused=tuple(name for name in _ELSEWHERE if last.get(name, "false") != "false"),
    )


def _flags_in(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, value). A flag without a value is "true"."""
    name = ""  # of a flag whose value may be the next word
    for word in (*words, "--"):  # the "--" ends the last flag
        is_flag = word.startswith(("--", "-H"))
        if not is_flag:
            if not name:
                raise Malformed(
                    "ARGOCD_OPTS contains a word that does not belong to an option",
                    "use --option value",
                )
            yield name, word
            name = ""
            continue
        if name in _VALUED:
            raise Malformed(f"--{name} in ARGOCD_OPTS has no value", f"use --{name} value")
        if name:
            yield name, "true"
        if word.startswith("-H"):  # -HNAME:VALUE, -H=NAME:VALUE, -H NAME:VALUE
            name = "header"
            attached = word.removeprefix("-H")
            has_value = bool(attached)
            value = attached.removeprefix("=")
        else:
            name, equals, value = word.removeprefix("--").partition("=")
            has_value = bool(equals)
        if has_value:
            yield name, value
            name = ""


_VALUED = (
    "server",
    "auth-token",
    "server-crt",
    "client-crt",
    "client-crt-key",
    "grpc-web-root-path",
    "header",
)


def parse_headers(texts: Sequence[str]) -> tuple[tuple[str, Secret], ...]:
    """Parse `Name: value` lines.

    Raises `Malformed`, which never shows the value, because it may be a credential.
    """
    found = []
    for text in texts:
        name, colon, value = text.partition(":")
        name = name.strip()
        value = value.strip()
        is_token = all(char.isalnum() or char in "-_.!#$%&'*+^`|~" for char in name)
        if not colon or not name or not is_token:
            raise Malformed(
                "an Argo CD API header does not have the form Name: value",
                "use --argocd-header 'Name: value'",
            )
        if not (value.isprintable() and value.isascii() and name.isascii()):
            raise Malformed(
                f"the header {name!r} has an invalid value",
                "use ASCII text on one line",
            )
        found.append((name, Secret(value)))
    return tuple(found)
