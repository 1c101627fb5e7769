"""The proofs that are required for an image, and what has been proved."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal


@dataclass(frozen=True)
class Identity:
    """Someone who may sign without a key, and the issuer that vouches for their identity."""

    subject: str  # a glob
    issuer: str


@dataclass(frozen=True)
class Demand:
    """What a signature or statement must prove about an image.

    "" accepts any value.
    """

    rule: Literal["signature", "provenance"]
    keys: tuple[str, ...] = ()  # paths of key files in the repository
    identities: tuple[Identity, ...] = ()
    source_repository: str = ""  # a glob, like the following three fields
    ref: str = ""
    workflow: str = ""
    builder: str = ""
    line: int = field(default=0, compare=False)  # the line in the config
    # the contents of the keys with their paths, once they have been read
    texts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Proof:
    """What has been proved about an image: who signed it, and, if known, where it was built."""

    kind: Literal["signature", "certificate", "slsa-v0.2", "slsa-v1"]
    signer: str
    source_repository: str = ""
    ref: str = ""
    workflow: str = ""
    builder: str = ""

    def __str__(self) -> str:
        parts: list[str] = [self.kind]
        for item in fields(self):
            value = getattr(self, item.name)
            if value and item.name != "kind":
                parts.append(f"{item.name}={value}")
        return "; ".join(parts)
