"""Determines how to connect to Argo CD's API, from command-line options and the variables
`ARGOCD_OPTS`, `ARGOCD_SERVER`, and `ARGOCD_AUTH_TOKEN`.

Users of the `argocd` command have already set these variables, so they have the same meaning here.
Error messages never quote a value, because some values are tokens.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from task.errors import Malformed
from task.secret import Secret

# ways to connect that the argocd command supports, but Image Update does not
_UNSUPPORTED_WAYS = (
    "core",
    "port-forward",
    "port-forward-namespace",
)


@dataclass(frozen=True)
class Connection:
    """The API's address and credentials. Unset fields are empty."""

    server: str = ""  # host[:port]; the user's value may also include a scheme and a path
    token: Secret = Secret("")
    token_file: str = ""
    plaintext: bool = False  # use http
    insecure: bool = False  # do not verify certificates
    ca_file: str = ""
    certificate: str = ""  # paths of the client certificate and its key
    key: str = ""
    root_path: str = ""
    headers: tuple[tuple[str, Secret], ...] = ()
    unused: tuple[str, ...] = ()  # options in ARGOCD_OPTS for an unsupported way to connect

    @property
    def base(self) -> str:
        """The API's URL."""
        scheme = "http" if self.plaintext else "https"
        return f"{scheme}://{self.server}{self.root_path}"


def connection(options: Connection, environ: Mapping[str, str]) -> Connection:
    """Fill in missing command-line options as the `argocd` command does: from ARGOCD_OPTS, then
    from ARGOCD_SERVER and ARGOCD_AUTH_TOKEN.

    Raises `Malformed` if there is no server, or if two values contradict each other.
    """
    argocd_opts = parse_options(environ.get("ARGOCD_OPTS", ""))
    server_variable = environ.get("ARGOCD_SERVER", "").strip()
    token_variable = Secret(environ.get("ARGOCD_AUTH_TOKEN", "").strip())
    completed = Connection(
        server=options.server or argocd_opts.server or server_variable,
        token=options.token or argocd_opts.token or token_variable,
        token_file=options.token_file,
        plaintext=options.plaintext or argocd_opts.plaintext,
        insecure=options.insecure or argocd_opts.insecure,
        ca_file=options.ca_file or argocd_opts.ca_file,
        certificate=options.certificate or argocd_opts.certificate,
        key=options.key or argocd_opts.key,
        root_path=options.root_path or argocd_opts.root_path,
        headers=(*argocd_opts.headers, *options.headers),
        unused=argocd_opts.unused,
    )
    return _with_checked_server(completed)


def _with_checked_server(connection: Connection) -> Connection:
    """Split the server's address, such as `https://host:port/path`, into the host and the root
    path.

    Raises `Malformed` if the address is missing or invalid, or contradicts the other values.
    """
    scheme, scheme_separator, after_scheme = connection.server.partition("://")
    without_scheme = after_scheme if scheme_separator else connection.server
    host, _, path = without_scheme.partition("/")
    if not host:
        unused = ""
        if connection.unused:
            unused = f" (--{connection.unused[0]} in ARGOCD_OPTS is not supported here)"
        raise Malformed(
            f"no Argo CD server is set{unused}",
            "pass --argocd-server HOST[:PORT], or set ARGOCD_SERVER",
        )
    has_invalid_characters = not host.isprintable() or bool(set(host) & set("@ ?#\\"))
    if has_invalid_characters:
        raise Malformed(
            "the Argo CD server is not a valid host",
            "use HOST[:PORT]; the token belongs in ARGOCD_AUTH_TOKEN",
        )
    if scheme_separator:
        _check_scheme(scheme.lower(), host, plaintext=connection.plaintext)
    has_only_one_of_both = bool(connection.certificate) != bool(connection.key)
    if has_only_one_of_both:
        raise Malformed(
            "a client certificate needs its key",
            "set both --client-crt and --client-crt-key in ARGOCD_OPTS",
        )
    # normalize the slashes: "argo//cd/" → "/argo/cd"
    parts = filter(None, (connection.root_path or path).split("/"))
    root_path = "".join(f"/{part}" for part in parts)
    return replace(connection, server=host, root_path=root_path)


def _check_scheme(scheme: str, host: str, *, plaintext: bool) -> None:
    """Raise `Malformed` for an unsupported scheme, or for one that would send the token unencrypted
    without permission (`plaintext`).
    """
    if scheme not in ("https", "http"):
        raise Malformed(f"{scheme!r} cannot be used to reach Argo CD's API", "use HOST[:PORT]")
    if scheme == "http" and not plaintext:
        raise Malformed(
            f"the Argo CD server {host} uses http://, which sends the token unencrypted",
            "use https://, or allow http:// with --argocd-plaintext",
        )


def parse_options(argocd_opts: str) -> Connection:
    """Parse the variable `ARGOCD_OPTS`, which contains flags for the argocd command, quoted as in a
    shell.

    Raises `Malformed` for values that the command also rejects.
    """
    try:
        arguments = shlex.split(argocd_opts)
    except ValueError:
        raise Malformed(
            "ARGOCD_OPTS has an unclosed quote",
            "use shell quoting",
        ) from None
    flags: dict[str, str] = {}  # if a flag is repeated, its last value wins
    header_values: list[str] = []  # but repeated --header flags add up
    for name, value in _flags_in(arguments):
        flags[name] = value
        if name == "header":
            header_values.append(value)
    return Connection(
        server=flags.get("server", ""),
        token=Secret(flags.get("auth-token", "")),
        plaintext=flags.get("plaintext") == "true",
        insecure=flags.get("insecure") == "true",
        ca_file=flags.get("server-crt", ""),
        certificate=flags.get("client-crt", ""),
        key=flags.get("client-crt-key", ""),
        root_path=flags.get("grpc-web-root-path", ""),
        headers=parse_headers(_headers_in(header_values)),
        unused=tuple(name for name in _UNSUPPORTED_WAYS if flags.get(name, "false") != "false"),
    )


def _headers_in(values: Sequence[str]) -> list[str]:
    """Return the headers from the values of `--header`. As with the argocd command, a value may
    contain several headers as a line of CSV. Raises `Malformed` for a value with several lines.
    """
    headers: list[str] = []
    for value in values:
        try:
            for row in csv.reader([value], skipinitialspace=True):
                headers += row
        except csv.Error:
            raise Malformed(
                "a header in ARGOCD_OPTS has a line break",
                "repeat --header for each header",
            ) from None
    return headers


def _flags_in(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the (name, value) of each flag: `--name=value`, `--name value`, or `-H value`.

    A flag without a value has the value "true". Raises `Malformed` for anything else.
    """
    pending_name = ""  # the name of a flag whose value may be the next argument, or ""
    for argument in (*arguments, "--"):  # "--" only completes the last flag
        is_flag = argument.startswith(("--", "-H"))
        if not is_flag:  # so it must be the value of the preceding flag
            if not pending_name:
                raise Malformed(
                    "ARGOCD_OPTS contains a word that does not belong to an option",
                    "use --option value",
                )
            yield pending_name, argument
            pending_name = ""
            continue

        # another flag begins, so the preceding flag has no value
        if pending_name in _FLAGS_WITH_VALUE:
            raise Malformed(
                f"--{pending_name} in ARGOCD_OPTS has no value", f"use --{pending_name} value"
            )
        if pending_name:
            yield pending_name, "true"
        name, value = _name_and_value(argument)
        if value is None:
            pending_name = name
        else:
            yield name, value
            pending_name = ""


def _name_and_value(flag: str) -> tuple[str, str | None]:
    """Return a flag's name and value. The value is None if it is not in the same argument as the
    flag.
    """
    if flag.startswith("-H"):  # -HNAME:VALUE, -H=NAME:VALUE, -H NAME:VALUE
        attached = flag.removeprefix("-H")
        return "header", (attached.removeprefix("=") if attached else None)
    name, equals, value = flag.removeprefix("--").partition("=")
    return name, (value if equals else None)


_FLAGS_WITH_VALUE = (
    "server",
    "auth-token",
    "server-crt",
    "client-crt",
    "client-crt-key",
    "grpc-web-root-path",
    "header",
)


def parse_headers(texts: Sequence[str]) -> tuple[tuple[str, Secret], ...]:
    """Parse HTTP headers in the form `Name: value`.

    Raises `Malformed`, whose message never contains the header's value, because it may be a
    credential.
    """
    headers = []
    for text in texts:
        name, colon, value = text.partition(":")
        name = name.strip()
        value = value.strip()
        # only characters that HTTP allows in header names
        has_valid_name = bool(name) and all(
            char.isalnum() or char in "-_.!#$%&'*+^`|~" for char in name
        )
        if not colon or not has_valid_name:
            raise Malformed(
                "an Argo CD API header does not have the form Name: value",
                "use --argocd-header 'Name: value'",
            )
        is_one_line_of_ascii = value.isprintable() and value.isascii() and name.isascii()
        if not is_one_line_of_ascii:
            raise Malformed(
                f"the header {name!r} has an invalid value",
                "use ASCII text on one line",
            )
        headers.append((name, Secret(value)))
    return tuple(headers)
