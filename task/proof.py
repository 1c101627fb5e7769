"""What is wanted as a proof of an image, and what was proved."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal


@dataclass(frozen=True)
class Identity:
    """Who may sign without a key: whom an issuer has identified."""

    subject: str  # a glob
    issuer: str


@dataclass(frozen=True)
class Demand:
    """What must be proved about an image, by one signature or statement.

    Of what is asked for, "" is anything.
    """

    rule: Literal["signature", "provenance"]
    keys: tuple[str, ...] = ()  # paths in the repository
    identities: tuple[Identity, ...] = ()
    source_repository: str = ""  # a glob, as the next three
    ref: str = ""
    workflow: str = ""
    builder: str = ""
    line: int = field(default=0, compare=False)  # of the config
    texts: tuple[tuple[str, str], ...] = ()  # the keys, each with its path, once they are read


@dataclass(frozen=True)
class Proof:
    """What was proved about an image: by whom it was signed,
    and where it was built as far as that is known.
    """

    kind: Literal["signature", "certificate", "slsa-v0.2", "slsa-v1"]
    signer: str
    source_repository: str = ""
    ref: str = ""
    workflow: str = ""
    builder: str = ""

    def __str__(self) -> str:
        known = (
            f"{item.name}={value}"
            for item in fields(self)[1:]
            if (value := getattr(self, item.name))
        )
        return "; ".join((self.kind, *known))
