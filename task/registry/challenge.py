"""Reads how a registry asks for a login (`WWW-Authenticate`), and decides which token servers may get it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PIECE = re.compile(r'[\s,]*([A-Za-z0-9!#$&^_`|~.+*%\'-]+)(?:\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,"]*))?', re.ASCII)

# Anybody may have a server under these domains, so a neighbour there is a stranger.
_SHARED = frozenset(
    (
        "github.io", "gitlab.io", "githubusercontent.com", "pages.dev", "workers.dev", "trycloudflare.com",
        "run.app", "web.app", "appspot.com", "firebaseapp.com", "herokuapp.com", "vercel.app", "netlify.app",
        "azurewebsites.net", "cloudapp.net", "cloudapp.azure.com", "trafficmanager.net", "blob.core.windows.net",
        "amazonaws.com", "compute.amazonaws.com", "elb.amazonaws.com", "s3.amazonaws.com", "cloudfront.net",
        "digitaloceanspaces.com", "ondigitalocean.app", "onrender.com", "fly.dev", "railway.app", "ts.net",
        "ngrok.io", "ngrok.app", "ngrok.dev", "ngrok-free.app", "nip.io", "sslip.io", "xip.io", "duckdns.org",
        "svc.cluster.local", "cluster.local",
    )
)  # fmt: skip
_SECOND_LEVEL = frozenset(["co", "com", "net", "org", "gov", "edu", "ac", "or", "ne", "go", "mil", "id", "me", "nom"])
# Registries whose token server has another domain: (end of the registry's host, host of the token server).
_PAIRS = (
    ("registry-1.docker.io", "auth.docker.io"),
    ("registry.hub.docker.com", "auth.docker.io"),
    ("registry.connect.redhat.com", "sso.redhat.com"),
    (".scw.cloud", "api.scaleway.com"),
)


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


def same_trust(registry: str, other: str) -> bool:
    """Tell whether a registry's login may be sent to another host (both without ports).

    Allowed are the registry itself, a host of its domain (GitLab: registry.example.com → gitlab.example.com), and known
    pairs. Otherwise anybody who can answer for a registry could name his own server as the realm, and get the login.
    """
    if registry == other:
        return bool(other)
    if any(registry.endswith(end) and other == host for end, host in _PAIRS):
        return True
    if registry.replace(".", "").isdigit() or ":" in registry:  # an IP address has no domain
        return False
    parent = registry.partition(".")[2]
    if not all(other.split(".")):
        return False
    return (_is_domain(other) and registry.endswith(f".{other}")) or (
        _is_domain(parent) and (other == parent or other.endswith(f".{parent}"))
    )


def _is_domain(name: str) -> bool:
    """Tell whether one owner has all hosts below this name, as far as this is known without the public suffix list."""
    labels = name.split(".")
    if len(labels) < 2 or name in _SHARED:  # example.com
        return False
    return not (len(labels) == 2 and len(labels[1]) == 2 and labels[0] in _SECOND_LEVEL)  # co.uk
