"""sprig's `urlParse` and `urlJoin`, which read and write URLs like Go's `net/url`."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from task.applicationsets.arguments import mapping, text
from task.templates.go_template.functions import named
from task.templates.go_template.values import AnyMap, FailedTemplate, go_bytes, go_text

# Punctuation that Go leaves as it is, besides - . _ ~
_IN_PATH, _IN_USER, _IN_FRAGMENT, _IN_HOST = "$&+,/:;=@", "$&+,;=", "!$&()*+,/:;=?@", "!$&'()*+,;=:[]<>\""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2}).{0,2}", re.DOTALL)
_STRANGE_IN_HOST = re.compile(r"[^A-Za-z0-9\-._~!$&'()*+,;=:\[\]<>\"%\x80-\U0010ffff]")
_ESCAPE_IN_HOST = re.compile(r"%(?!25)[0-7].")
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_PORT = re.compile(r"(?::[0-9]*)?")


def url_parse(value: Any) -> AnyMap:
    """Run `urlParse`."""
    whole, _, fragment = text(value).partition("#")
    if _CONTROL.search(whole):
        raise _bad("invalid control character in URL")
    if whole.startswith(":"):
        raise _bad("missing protocol scheme")
    found = _SCHEME.match(whole)
    scheme = found[1].lower() if found else ""
    rest, _, query = whole[found.end() if found else 0 :].partition("?")
    user = host = opaque = ""
    if scheme and not rest.startswith("/"):
        rest, opaque = "", rest
    elif not rest.startswith("/") and ":" in rest.partition("/")[0]:
        raise _bad("first path segment in URL cannot contain colon")
    elif rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, rest = rest[2:].partition("/")
        before, _, host = authority.rpartition("@")
        host, rest = _host(scheme, host), slash + rest
        user = _user(before)
    port = host.rfind(":")
    name = host[:port] if port >= 0 and _PORT.fullmatch(host[port:]) else host
    return AnyMap(
        scheme=scheme, host=host, hostname=name[1:-1] if name.startswith("[") and name.endswith("]") else name,
        path=_unescaped(rest), query=query, opaque=opaque, fragment=_unescaped(fragment), userinfo=user,
    )  # fmt: skip


def url_join(given: Any) -> str:
    """Run `urlJoin`."""
    parts = {key: _part(mapping(given), key) for key in ("scheme", "host", "path", "query", "opaque", "fragment")}
    user = _user(_part(mapping(given), "userinfo"))
    joined = f"{parts['scheme']}:" if parts["scheme"] else ""
    if parts["opaque"]:
        joined += parts["opaque"]
    else:
        path = parts["path"] if parts["path"] == "*" else _escaped(parts["path"], _IN_PATH)
        if parts["host"] or user or (parts["scheme"] and path):
            joined += "//" + (f"{user}@" if user else "") + _escaped(parts["host"], _IN_HOST)
        if parts["host"] and path and not path.startswith("/"):
            joined += "/"
        joined += "./" + path if not joined and ":" in path.partition("/")[0] else path
    joined += f"?{parts['query']}" if parts["query"] else ""
    return joined + (f"#{_escaped(parts['fragment'], _IN_FRAGMENT)}" if parts["fragment"] else "")


def _bad(why: str) -> FailedTemplate:
    return FailedTemplate(f"unable to parse url: {why}")


def _part(given: AnyMap, key: str) -> str:
    value = given.get(key, "")
    if not isinstance(value, str):
        raise FailedTemplate(f"unable to parse {key} key, must be of type string, but {named(value)} found")
    return value


def _unescaped(value: str) -> str:
    if wrong := _ESCAPE.search(value):
        raise _bad(f'invalid URL escape "{wrong[0]}"')
    return go_text(unquote_to_bytes(go_bytes(value)))


def _escaped(value: str, safe: str) -> str:
    return quote(go_bytes(value), safe=safe)


def _user(value: str) -> str:
    if not _USER.fullmatch(value):
        raise _bad("net/url: invalid userinfo")
    name, colon, password = value.partition(":")
    return _escaped(_unescaped(name), _IN_USER) + colon + _escaped(_unescaped(password), _IN_USER)


def _host(scheme: str, host: str) -> str:
    """Return the host, unescaped, with its port."""
    at = host.find(":") if scheme in ("http", "https") else host.rfind(":")
    if "[" in host:
        at = host.rfind("]") + 1
    if not _PORT.fullmatch(host[at:] if at >= 0 else ""):
        raise _bad(f'invalid port "{host[at:]}" after host')
    if wrong := _STRANGE_IN_HOST.search(host) or _ESCAPE_IN_HOST.search(host):
        raise _bad(f'invalid character "{wrong[0]}" in host name')
    plain = _unescaped(host)
    if "[" in host:
        try:
            IPv6Address(plain.partition("]")[0].removeprefix("["))
        except AddressValueError:
            raise _bad("invalid host") from None
    return plain
