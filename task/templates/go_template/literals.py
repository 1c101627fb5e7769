"""The values of Go's literals: strings, characters, numbers."""

from __future__ import annotations

import re
from contextlib import suppress
from math import isinf, isnan

from task.errors import Malformed

ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([abfnrtv\\'\"]))")
SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"'}
INTEGER = re.compile(
    r"[+-]?(?:0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+|0(?:_?[0-7])*|[1-9](?:_?[0-9])*)"
)
DECIMAL = re.compile(r"[+-]?(?:D\.?(?:D)?|\.D)(?:[eE][+-]?D)?".replace("D", "[0-9](?:_?[0-9])*"))
HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
LARGEST = 2**63 - 1


def go_bytes(text: str) -> bytes:
    """Return the bytes of a Go string.

    In our strings, bytes that are not UTF-8 are lone surrogates, as in `os.fsdecode`.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate that was never a byte
        return text.encode("utf-8", "replace")


def go_text(raw: bytes) -> str:
    """Return the Go string with these bytes, which need not be UTF-8."""
    return raw.decode("utf-8", "surrogateescape")


def string(literal: str) -> str:
    """Return the value of `"…"`, or of a raw string in backquotes. Raises Malformed."""
    body = literal[1:-1]
    return body.replace("\r", "") if literal[0] == "`" else go_text(b"".join(_pieces(body, '"', literal)))


def character(literal: str) -> int:
    """Return the number of the character `'x'`. Raises Malformed."""
    pieces = _pieces(literal[1:-1], "'", literal)
    if len(pieces) == 1:
        try:
            return ord(pieces[0].decode())
        except (TypeError, UnicodeDecodeError):
            if len(pieces[0]) == 1:
                return pieces[0][0]  # '\xff' is the number 255
    raise Malformed(f"malformed character constant: {literal}")


def _pieces(body: str, quote: str, literal: str) -> list[bytes]:
    pieces: list[bytes] = []
    at = 0
    while at < len(body):
        if body[at] != "\\":
            end = body.find("\\", at)
            end = len(body) if end < 0 else end
            pieces.append(go_bytes(body[at:end]))
        else:
            match = ESCAPE.match(body, at)
            if match is None or match[5] in {"'", '"'} - {quote}:
                raise Malformed(f"invalid escape in {literal[:40]}")
            pieces.append(_escaped(match, literal))
            end = match.end()
        at = end
    return pieces


def _escaped(match: re.Match[str], literal: str) -> bytes:
    if match[5]:
        return SIMPLE[match[5]].encode()
    number = int(match[2], 8) if match[2] else int(match[1] or match[3] or match[4], 16)
    if match[1] or match[2]:
        if number <= 0xFF:
            return bytes((number,))
    elif number <= 0x10FFFF and not 0xD800 <= number < 0xE000:
        return chr(number).encode()
    raise Malformed(f"invalid escape in {literal[:40]}")


def number(literal: str) -> int | float:
    """Return the value of a number, as an integer or a float depending on its spelling. Raises Malformed."""
    if INTEGER.fullmatch(literal):
        if len(literal) > 100:  # 64 binary digits with underscores are shorter
            raise Malformed(f"integer overflow: {literal[:40]}")
        digits = literal.lstrip("+-").replace("_", "").lower()
        octal = digits.isdecimal() and digits.startswith("0")
        integer = int(digits, 8) if octal else int(digits, 0)
        integer = -integer if literal[0] == "-" else integer
        if not -LARGEST - 1 <= integer <= LARGEST:
            raise Malformed(f"{literal} overflows int")
        return integer
    if literal.endswith("i"):
        raise Malformed(f"complex numbers are not supported: {literal}")
    value = float("nan")
    with suppress(OverflowError):
        if HEXADECIMAL.fullmatch(literal):
            value = float.fromhex(literal.replace("_", ""))
        elif DECIMAL.fullmatch(literal):
            value = float(literal.replace("_", ""))
    if isnan(value):
        raise Malformed(f"illegal number syntax: {literal[:40]}")
    if not any(letter in ".eEpP" for letter in literal):
        raise Malformed(f"integer overflow: {literal}")
    if isinf(value):
        raise Malformed(f"illegal number syntax: {literal}")
    return value
