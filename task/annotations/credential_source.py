"""Parses the text that says where a registry's login is: `pull-secret`, and `credentials` in registries.conf.

The text names a place, and contains no secret. The grammar is that of Argo CD Image Updater (AIU).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from task.errors import Malformed
from task.text import shortened

DOCKER_CONFIG = ".dockerconfigjson"
HINT = "write pullsecret:<namespace>/<name>, secret:<namespace>/<name>#<field>, env:<VARIABLE> or ext:</path/of/script>"
CredentialKind = Literal["pullsecret", "secret", "env", "ext"]


@dataclass(frozen=True)
class CredentialSource:
    """The place of a login. Fields that do not belong to the kind are ""."""

    kind: CredentialKind
    registry: str = ""  # the part before `=`; "" if the text names no registry
    namespace: str = ""
    name: str = ""
    field: str = ""
    env: str = ""
    script: str = ""


def parse_credential_source(spec: str, *, prefix_required: bool = False) -> CredentialSource:
    """Parse `[registry=]kind:place`. Raises `Malformed`.

    As in AIU, a script's path is not checked here. It must be absolute when the script is run.
    """
    registry, _, rest = spec.partition("=")
    if not (registry and rest):
        if prefix_required:
            raise Malformed(f"{shortened(spec)!r} names no registry", "write <registry>=<kind>:<place>")
        registry, rest = "", spec
    word, colon, place = rest.partition(":")
    if not colon or not place or ":" in place:
        raise Malformed(f"{shortened(spec)!r} is not a credential source", HINT)
    kind = word.lower()
    if kind == "env":
        return CredentialSource("env", registry, env=place)
    if kind == "ext":
        return CredentialSource("ext", registry, script=place)
    if kind not in ("pullsecret", "secret"):
        raise Malformed(f"{shortened(spec)!r}: unknown kind of credentials {shortened(word)!r}", HINT)
    # As in AIU, a `#` belongs to the name of a pull secret.
    secret, _, field = place.partition("#") if kind == "secret" else (place, "", DOCKER_CONFIG)
    namespace, _, name = secret.partition("/")
    if not (namespace and name and field) or "/" in name or "#" in field:
        raise Malformed(f"{shortened(spec)!r} names no secret", HINT)
    return CredentialSource("secret" if kind == "secret" else "pullsecret", registry, namespace, name, field)
