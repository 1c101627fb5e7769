"""Template values: Go's strings and maps, and the error and the limits that make hostile templates
harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from task.errors import Malformed

LONGEST_TEXT = 1024 * 1024  # characters in a result, or in a value that it uses
DEEPEST = 100  # nested blocks and parentheses; each else-if counts
# not in the function tables, because they do not evaluate all of their arguments
SHORTCUTS = (
    "and",
    "or",
)


class FailedTemplate(Malformed):
    """A template that can be parsed failed at run time.

    The reason may be an unknown field, an index out of range, or too many steps.
    """

    line = 0
    place = ""  # position of the innermost operand that failed, in Go's wording


class GoMap(dict[str, Any]):
    """A Go `map[string]string` in a template's data.

    A missing key prints `<no value>`, whereas a struct's missing field would fail.
    """

    zero: str | None = ""  # the value that `index` returns for a missing key


class AnyMap(GoMap):
    """A Go `map[string]interface{}`, the type of maps from JSON and YAML."""

    zero = None


class Printable(dict[str, Any]):
    """A struct that defines its own text form, like a Go `Stringer`."""

    def __init__(self, text: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.text = text


def go_bytes(text: str) -> bytes:
    """Return the bytes of a Go string.

    In our strings, non-UTF-8 bytes are lone surrogates, as in `os.fsdecode`.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate that was never a byte
        return text.encode("utf-8", "replace")


def go_text(raw: bytes) -> str:
    """Return the Go string with these bytes, which may not be valid UTF-8."""
    return raw.decode("utf-8", "surrogateescape")
