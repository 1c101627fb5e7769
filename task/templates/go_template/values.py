"""The values in templates, such as Go's strings and maps, and the error and limits that make
hostile templates harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from task.errors import Malformed

LONGEST_TEXT = 1024 * 1024  # characters in a template's result, or in a value that it uses
DEEPEST = 100  # maximum depth of nested blocks and parentheses; each else-if adds a level
# not in the function tables, because they do not evaluate all their arguments
SHORTCUTS = (
    "and",
    "or",
)


class FailedTemplate(Malformed):
    """Raised when a template that could be parsed fails at run time.

    The reason may be an unknown field, an index out of range, or too many steps.
    """

    line = 0
    place = ""  # the position of the innermost operand that failed, as Go words it


class GoMap(dict[str, Any]):
    """A Go `map[string]string` in a template's data.

    A missing key prints `<no value>`, whereas a missing field in a struct makes the template fail.
    """

    zero: str | None = ""  # what `index` returns for a missing key


class AnyMap(GoMap):
    """A Go `map[string]interface{}`, the type of maps from JSON and YAML."""

    zero = None


class Printable(dict[str, Any]):
    """A struct that defines how it is printed, like a Go `Stringer`."""

    def __init__(self, text: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.text = text


def go_bytes(text: str) -> bytes:
    """Return the bytes of a Go string.

    Our strings represent non-UTF-8 bytes as lone surrogates, as in `os.fsdecode`.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate that does not represent a byte
        return text.encode("utf-8", "replace")


def go_text(raw: bytes) -> str:
    """Return the Go string that consists of these bytes, which may be invalid UTF-8."""
    return raw.decode("utf-8", "surrogateescape")
