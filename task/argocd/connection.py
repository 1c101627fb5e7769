"""How to reach Argo CD's API: options, `ARGOCD_OPTS`,
`ARGOCD_SERVER` and `ARGOCD_AUTH_TOKEN` → Connection.

Users of the `argocd` command have these variables already, so they mean the same here. No message
quotes a value, because some are tokens.
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
    """The address of the API, and the login. Fields that were not given are empty."""

    server: str = ""  # host[:port]; as given it may have a scheme and a path
    token: Secret = Secret("")
    token_file: str = ""
    plaintext: bool = False  # http
    insecure: bool = False  # certificates are not checked
    ca_file: str = ""
    certificate: str = ""  # files with a client certificate and its key
    key: str = ""
    root_path: str = ""
    headers: tuple[tuple[str, Secret], ...] = ()
    unused: tuple[str, ...] = ()  # options in ARGOCD_OPTS that name another way to connect

    @property
    def base(self) -> str:
        """The API's URL."""
        scheme = "http" if self.plaintext else "https"
        return f"{scheme}://{self.server}{self.root_path}"


def connection(given: Connection, environ: Mapping[str, str]) -> Connection:
    """Fill the gaps in the options as the `argocd` command does: from ARGOCD_OPTS,
    then from the variables.

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
    """Split the server into host, scheme and path."""
    scheme, marker, rest = found.server.partition("://")
    rest = rest if marker else found.server
    host, _, path = rest.partition("/")
    if not host:
        way = f" (--{found.unused[0]} of ARGOCD_OPTS is not supported here)" if found.unused else ""
        raise Malformed(
            f"no Argo CD server is given{way}",
            "give --argocd-server HOST[:PORT], or set ARGOCD_SERVER",
        )
    if "@" in host or not host.isprintable() or set(host) & set(" ?#\\"):
        raise Malformed(
            "the Argo CD server is not a host",
            "write HOST[:PORT]; the token belongs in ARGOCD_AUTH_TOKEN",
        )
    if marker:
        _check_scheme(scheme.lower(), host, found)
    if bool(found.certificate) != bool(found.key):
        raise Malformed(
            "a client certificate needs its key",
            "give --client-crt and --client-crt-key in ARGOCD_OPTS",
        )
    root = "/".join(part for part in (found.root_path or path).split("/") if part)
    return replace(found, server=host, root_path=f"/{root}" if root else "")


def _check_scheme(scheme: str, host: str, found: Connection) -> None:
    """Raise `Malformed` for a scheme that cannot be used, or sends the token unencrypted."""
    if scheme not in ("https", "http"):
        raise Malformed(f"{scheme!r} cannot be used to reach Argo CD's API", "write HOST[:PORT]")
    if scheme == "http" and not found.plaintext:
        raise Malformed(
            f"the Argo CD server {host} is given with http://, which sends the token unencrypted",
            "write https://, or allow it with --argocd-plaintext",
        )


def parse_options(words: str) -> Connection:
    """Return what `ARGOCD_OPTS` says, split as by a shell.

    Raises `Malformed` for what the command refuses as well.
    """
    found: dict[str, list[str]] = {}
    try:
        split = shlex.split(words)
    except ValueError:
        raise Malformed(
            "ARGOCD_OPTS has a quote that is not closed",
            "quote it as in a shell",
        ) from None
    for name, value in _flags_in(split):
        found.setdefault(name, []).append(value)
    last = {name: values[-1] for name, values in found.items()}
    # Like the command, accept several headers in one value: one line of CSV.
    lines = (csv.reader([text], skipinitialspace=True) for text in found.get("header", ()))
    headers = [one for line in lines for row in line for one in row]
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
    name = ""
    for word in (*words, "--"):
        if not word.startswith("--") and word[:2] != "-H":
            if not name:
                raise Malformed(
                    "ARGOCD_OPTS contains a word that belongs to no option",
                    "write --option value",
                )
            yield name, word
            name = ""
            continue
        if name in _VALUED:
            raise Malformed(f"--{name} in ARGOCD_OPTS has no value", f"write --{name} value")
        if name:
            yield name, "true"
        name, equals, value = (
            ("header", "=" if word[2:] else "", word[2:].removeprefix("="))
            if word[:2] == "-H"
            else (word[2:].partition("="))
        )
        if equals:
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

    Raises `Malformed`, which never shows the value, because it may be a login.
    """
    found = []
    for text in texts:
        name, colon, value = text.partition(":")
        name = name.strip()
        value = value.strip()
        if (
            not colon
            or not name
            or not all(char.isalnum() or char in "-_.!#$%&'*+^`|~" for char in name)
        ):
            raise Malformed(
                "a header of Argo CD's API is not written Name: value",
                "write --argocd-header 'Name: value'",
            )
        if not (value.isprintable() and value.isascii() and name.isascii()):
            raise Malformed(
                f"the header {name!r} has a value that no header can have",
                "write ASCII text on one line",
            )
        found.append((name, Secret(value)))
    return tuple(found)
