"""Reads how a registry asks for a login (`WWW-Authenticate`), and decides which token servers may get it."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

_PIECE = re.compile(r'[\s,]*([A-Za-z0-9!#$&^_`|~.+*%\'-]+)(?:\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,"]*))?', re.ASCII)

# Registries whose token server has another name, as their documentation says: (registry, token server), whole names.
_PAIRS = (
    (r"(?:.+\.)?docker\.io|registry\.hub\.docker\.com", r"auth\.docker\.io"),
    (r"registry\.connect\.redhat\.com", r"sso\.redhat\.com"),
    (r"registry\.digitalocean\.com", r"api\.digitalocean\.com"),
    (r"docker\.elastic\.co", r"docker-auth\.elastic\.co"),
    (r"registry2\.balena-cloud\.com", r"api\.balena-cloud\.com"),
    (r".+\.pkg\.coding\.net", r"auth\.pkg\.coding\.net"),
    (r".+\.scw\.cloud", r"api\.scaleway\.com"),
    (r".+\.aliyuncs\.com", r"dockerauth(?:-ee)?(?:\.[a-z]{2}-[a-z0-9-]+)?\.aliyuncs\.com"),
)
# GitLab's registry: registry.gitlab.example.com → gitlab.example.com, registry.example.com → gitlab.example.com.
_GITLAB = re.compile(r"registry\.((?:[^.\s]+\.)+[^.\s]+) (?:gitlab\.)?\1")


@dataclass(frozen=True)
class Challenge:
    """One way to log in that a registry offers."""

    scheme: str  # in lower case
    parameters: Mapping[str, str]  # keys in lower case


def challenges(header: str) -> tuple[Challenge, ...]:
    """Return the challenges of a `WWW-Authenticate` header, in order. Malformed parts are left out."""
    offered: list[Challenge] = []
    for match in _PIECE.finditer(header[:8192]):
        name, value = match.group(1).lower(), match.group(2)
        if value is None:
            offered.append(Challenge(name, {}))
        elif offered:
            value = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
            offered[-1] = Challenge(offered[-1].scheme, {name: value, **offered[-1].parameters})
    return tuple(offered)


def may_get_login(registry: str, other: str) -> bool:
    """Tell whether a registry's login may be sent to another host, although its user has not named it.

    Both are without ports. Allowed are the registry itself and documented pairs. Otherwise anybody who can answer for a
    registry could name his own server as the realm, and get the login.
    """
    pairs = any(re.fullmatch(one, registry) and re.fullmatch(theirs, other) for one, theirs in _PAIRS)
    return bool(other) and (registry == other or pairs or bool(_GITLAB.fullmatch(f"{registry} {other}")))


def may_be_asked(registry: str, other: str) -> bool:
    """Tell whether a token server may be asked at all: a public registry must not send us to an address in our network.

    Only addresses are looked at. Where a name leads to is known when it is used, and only then.
    """
    theirs = _address(other)
    if registry == other or theirs is None or theirs.is_global:
        return True
    ours = _address(registry)
    inside = ours is not None and not ours.is_global and ours.is_loopback == theirs.is_loopback
    return inside and not theirs.is_link_local


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a host is, if it is none by name. Resolvers take `127.1` and `0x7f.1` as addresses."""
    host = host.strip("[]").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return ipaddress.IPv4Address("127.0.0.1")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    return getattr(address, "ipv4_mapped", None) or address
