"""Splits a template into tokens as Go's `text/template/parse` does, and parses literals."""

from __future__ import annotations

import re
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from math import isinf, isnan

from task.errors import Malformed
from task.templates.go_template.values import go_bytes, go_text

SPACES = " \t\r\n"
KEYWORDS = frozenset(
    (
        "block",
        "break",
        "continue",
        "define",
        "else",
        "end",
        "if",
        "nil",
        "range",
        "template",
        "with",
    )
)
UNFINISHED = {
    '"': "quoted string",
    "`": "raw quoted string",
    "'": "character constant",
}
OPENING = re.compile(r"\{\{(-[ \t\r\n])?")  # with or without a trim marker
# A closing delimiter may have a trim marker, which begins with a space. So a run of spaces ends
# before the trim marker.
ACTION = re.compile(
    r"""(?P<close>\}\})|(?P<trim>[ \t\r\n]-\}\})[ \t\r\n]*  # a trim marker removes the white space after it
    |(?P<space>[ \t\r\n]+(?!-\}\}))
    |(?P<declare>:=)|(?P<assign>=)|(?P<pipe>\|)|(?P<left>\()|(?P<right>\))
    |(?P<string>"(?:[^"\\\n]|\\[^\n])*+")|(?P<raw>`[^`]*`)|(?P<char>'(?:[^'\\\n]|\\[^\n])*+')
    |(?P<variable>\$\w*)
    |(?P<number>[+-]?\.?[0-9](?:[eEpP][+-]|[\w.])*)
    |(?P<field>\.\w+)|(?P<dot>\.)|(?P<word>\w+)
    |(?P<other>[!-~])""",
    re.VERBOSE,
)
ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([abfnrtv\\'\"]))"
)
SIMPLE = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
}
INTEGER = re.compile(
    r"[+-]?(?:0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+|0(?:_?[0-7])*|[1-9](?:_?[0-9])*)"
)
DECIMAL = re.compile(r"[+-]?(?:D\.?(?:D)?|\.D)(?:[eE][+-]?D)?".replace("D", "[0-9](?:_?[0-9])*"))
HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Token:
    """A token. `line` counts from one, and `column` from zero."""

    kind: str
    text: str
    line: int
    column: int = 0


def malformed(line: int, problem: str) -> Malformed:
    """Return the error for a template that cannot be parsed."""
    return Malformed(f"template, line {line}: {problem}")


def scan(text: str) -> list[Token]:
    """Return the tokens of a template, with `end of text` as the last one. Raises Malformed."""
    lines = [0, *(found.end() for found in re.finditer("\n", text))]  # their start positions
    tokens: list[Token] = []
    at = 0
    while opening := OPENING.search(text, at):
        line = bisect_right(lines, opening.start())
        inside = opening.end()
        piece = text[at : opening.start()]
        tokens.append(Token("text", piece.rstrip(SPACES) if opening[1] else piece, line))
        comment = text.startswith("/*", inside)
        at = (
            _end_of_comment(text, inside, line) if comment else _action(text, inside, lines, tokens)
        )
    line = bisect_right(lines, len(text))
    tokens += [Token("text", text[at:], line), Token("end of text", "end of text", line)]
    return [token for token in tokens if token.text]


def _end_of_comment(text: str, at: int, line: int) -> int:
    """Return the position after a comment."""
    end = text.find("*/", at + 2)
    if end < 0:
        raise malformed(line, "unclosed comment")
    close = ACTION.match(text, end + 2)
    if close is None or close.lastgroup not in {"close", "trim"}:
        raise malformed(line, "comment ends before closing delimiter")
    return close.end()


def _action(text: str, at: int, lines: list[int], tokens: list[Token]) -> int:
    """Append an action's tokens, and return the position after it."""
    tokens.append(Token("open", "{{", bisect_right(lines, at)))
    while at < len(text):
        match = ACTION.match(text, at)
        line = bisect_right(lines, at)
        if match is None:
            raise malformed(line, f"unrecognized character in action: {text[at]!r}")
        token = _token(match, line, at - lines[line - 1])
        tokens.append(token)
        at = match.end()
        if token.kind == "close":
            return at
        name = token.kind in {"variable", "field", "dot", "word"} or token.text in KEYWORDS
        # A name ends at whitespace, at one of `.,|:()`, or at the end of the action.
        if (
            name
            and at < len(text)
            and text[at] not in SPACES + ".,|:()"
            and not text.startswith("}}", at)
        ):
            raise malformed(line, f"bad character {text[at]!r}")
    raise malformed(bisect_right(lines, at), "unclosed action")


def _token(match: re.Match[str], line: int, column: int) -> Token:
    kind = str(match.lastgroup)
    text = match[kind]
    if kind == "other" and text in UNFINISHED:
        raise malformed(line, f"unterminated {UNFINISHED[text]}")
    if not text.isascii() and kind in {"variable", "field", "word", "number"}:
        for letter in text.lstrip(".$"):
            # Python's \w matches more characters than Go's letters and decimal digits.
            if not (letter == "_" or letter.isalpha() or letter.isdecimal() or letter.isascii()):
                raise malformed(line, f"unrecognized character in action: {letter!r}")
    if kind == "word" and text in KEYWORDS:
        kind = text
    return Token("close" if kind == "trim" else kind, text, line, column)


def string(literal: str) -> str:
    """Return the value of `"…"` or a raw string in backquotes. Raises Malformed."""
    body = literal[1:-1]
    return (
        body.replace("\r", "")
        if literal[0] == "`"
        else go_text(b"".join(_pieces(body, '"', literal)))
    )


def character(literal: str) -> int:
    """Return the code point of the character literal `'x'`. Raises Malformed."""
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
    octal = match[2]
    hexadecimal = match[1] or match[3] or match[4]
    number = int(octal, 8) if octal else int(hexadecimal, 16)
    if match[1] or octal:
        if number <= 0xFF:
            return bytes((number,))
    elif number <= 0x10FFFF and not 0xD800 <= number < 0xE000:
        return chr(number).encode()
    raise Malformed(f"invalid escape in {literal[:40]}")


def number(literal: str) -> int | float:
    """Return a number's value, as an integer or a float depending on its spelling.

    Raises Malformed.
    """
    if INTEGER.fullmatch(literal):
        if len(literal) > 100:  # even 64 binary digits with underscores are shorter
            raise Malformed(f"integer overflow: {literal[:40]}")
        digits = literal.lstrip("+-").replace("_", "").lower()
        octal = digits.isdecimal() and digits.startswith("0")
        integer = int(digits, 8) if octal else int(digits, 0)
        if literal.startswith("-"):
            integer = -integer
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
