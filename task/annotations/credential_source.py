"""Where a registry's credentials come from: the text of `pull-secret`, and of `credentials` in registries.conf.

The text only names a place; no secret stands in it. The grammar is that of Argo CD Image Updater (AIU).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from task.errors import Malformed

DOCKER_CONFIG = ".dockerconfigjson"
LONGEST_QUOTE = 200
HINT = "write pullsecret:<namespace>/<name>, secret:<namespace>/<name>#<field>, env:<VARIABLE> or ext:</path/of/script>"
CredentialKind = Literal["pullsecret", "secret", "env", "ext"]


@dataclass(frozen=True)
class CredentialSource:
    """A place to find a login; what does not belong to its kind is ""."""

    kind: CredentialKind
    registry: str = ""  # of `registry=…`; "" where none is written
    namespace: str = ""
    name: str = ""
    field: str = ""
    env: str = ""
    script: str = ""


def parse_credential_source(spec: str, *, prefix_required: bool = False) -> CredentialSource:
    """Read `[registry=]kind:place`.

    A script's path is not judged here, as in AIU: that it is absolute counts when it is run. Raises `Malformed`.
    """
    registry, _, rest = spec.partition("=")
    if not (registry and rest):
        if prefix_required:
            raise Malformed(f"{_cut(spec)!r} names no registry", "write <registry>=<kind>:<place>")
        registry, rest = "", spec
    word, colon, place = rest.partition(":")
    if not colon or not place or ":" in place:
        raise Malformed(f"{_cut(spec)!r} is no credential source", HINT)
    read = KINDS.get(word.lower())
    if read is None:
        raise Malformed(f"{_cut(spec)!r}: unknown kind of credentials {_cut(word)!r}", HINT)
    found = read(place)
    if found is None:
        raise Malformed(f"{_cut(spec)!r} names no secret", HINT)
    return replace(found, registry=registry)


def _pull_secret(place: str) -> CredentialSource | None:
    """`namespace/name`; a `#` belongs to the name, as AIU reads it."""
    namespace, _, name = place.partition("/")
    if not namespace or not name or "/" in name:
        return None
    return CredentialSource("pullsecret", namespace=namespace, name=name, field=DOCKER_CONFIG)


def _secret(place: str) -> CredentialSource | None:
    """`namespace/name#field`."""
    secret, _, field = place.partition("#")
    namespace, _, name = secret.partition("/")
    if not (namespace and name and field) or "/" in name or "#" in field:
        return None
    return CredentialSource("secret", namespace=namespace, name=name, field=field)


KINDS: Mapping[str, Callable[[str], CredentialSource | None]] = {
    "pullsecret": _pull_secret,
    "secret": _secret,
    "env": lambda place: CredentialSource("env", env=place),
    "ext": lambda place: CredentialSource("ext", script=place),
}


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"
