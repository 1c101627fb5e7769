"""Splits a template into tokens, as Go's `text/template/parse` does, and parses literals."""

from __future__ import annotations

import re
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from math import isinf

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
# A closing delimiter may have a trim marker, which begins with a space, so a run of spaces must end
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
    r"\\(?:x(?P<hex_byte>[0-9a-fA-F]{2})|(?P<octal_byte>[0-7]{3})"
    r"|u(?P<unicode4>[0-9a-fA-F]{4})|U(?P<unicode8>[0-9a-fA-F]{8})|(?P<simple>[abfnrtv\\'\"]))"
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
    """A token. Lines are counted from one, and columns from zero."""

    kind: str
    text: str
    line: int
    column: int = 0


def malformed(line: int, problem: str) -> Malformed:
    """Return the error for an unparsable template."""
    return Malformed(f"template, line {line}: {problem}")


def scan(text: str) -> list[Token]:
    """Return the tokens of a template: its texts, the tokens in its actions, and `end of text`.

    Comments and empty texts produce no tokens. Raises a Malformed that names the line.
    """
    line_starts = [0, *(line_break.end() for line_break in re.finditer("\n", text))]
    tokens: list[Token] = []
    position = 0
    while opening := OPENING.search(text, position):
        line = bisect_right(line_starts, opening.start())
        text_before = text[position : opening.start()]
        has_trim_marker = opening[1] is not None
        if has_trim_marker:
            text_before = text_before.rstrip(SPACES)
        tokens.append(Token("text", text_before, line))
        inside = opening.end()
        if text.startswith("/*", inside):
            position = _end_of_comment(text, inside, line)
        else:
            position = _scan_action(text, inside, line_starts, tokens)
    last_line = bisect_right(line_starts, len(text))
    tokens.append(Token("text", text[position:], last_line))
    tokens.append(Token("end of text", "end of text", last_line))
    return [token for token in tokens if token.text]


def _end_of_comment(text: str, start: int, line: int) -> int:
    """Return the position after the closing delimiter of the comment that starts here. Raises
    Malformed if the comment is not closed.
    """
    end = text.find("*/", start + len("/*"))
    if end < 0:
        raise malformed(line, "unclosed comment")
    close = ACTION.match(text, end + len("*/"))
    if close is None or close.lastgroup not in {"close", "trim"}:
        raise malformed(line, "comment ends before closing delimiter")
    return close.end()


def _scan_action(text: str, position: int, line_starts: list[int], tokens: list[Token]) -> int:
    """Append the tokens of the action that starts here to `tokens`, and return the position after
    the action.

    `position` is just after the opening delimiter. `line_starts` are the positions at which the
    template's lines begin. Raises Malformed for an invalid or unclosed action.
    """
    tokens.append(Token("open", "{{", bisect_right(line_starts, position)))
    while position < len(text):
        line = bisect_right(line_starts, position)
        column = position - line_starts[line - 1]
        match = ACTION.match(text, position)
        if match is None:
            raise malformed(line, f"unrecognized character in action: {text[position]!r}")
        token = _token(match, line, column)
        tokens.append(token)
        position = match.end()
        if token.kind == "close":
            return position
        is_name = token.kind in {"variable", "field", "dot", "word"} or token.text in KEYWORDS
        if is_name and not _ends_name(text, position):  # such as `.Name"text"`
            raise malformed(line, f"bad character {text[position]!r}")
    raise malformed(bisect_right(line_starts, position), "unclosed action")


def _ends_name(text: str, position: int) -> bool:
    """Return whether a name may end here: before whitespace, one of `.,|:()`, or `}}`."""
    if position == len(text) or text.startswith("}}", position):
        return True
    return text[position] in SPACES + ".,|:()"


def _token(match: re.Match[str], line: int, column: int) -> Token:
    """Return the token for a match of the pattern `ACTION`.

    The token's kind is the name of the group that matched, with two exceptions: a keyword's kind is
    the keyword itself, and a closing delimiter with a trim marker has the kind "close". Raises
    Malformed for an unfinished string and for an invalid name.
    """
    kind = str(match.lastgroup)
    text = match[kind]
    if kind == "other" and text in UNFINISHED:
        raise malformed(line, f"unterminated {UNFINISHED[text]}")
    if kind in {"variable", "field", "word", "number"} and not text.isascii():
        for letter in text.lstrip(".$"):
            if not _is_name_letter(letter):
                raise malformed(line, f"unrecognized character in action: {letter!r}")
    if kind == "word" and text in KEYWORDS:
        kind = text
    if kind == "trim":
        kind = "close"
    return Token(kind, text, line, column)


def _is_name_letter(letter: str) -> bool:
    r"""Return whether a character that matches `\w` may be part of a name in Go.

    Python's `\w` also matches characters that are neither letters nor decimal digits in Go, such as
    `²`.
    """
    return letter == "_" or letter.isalpha() or letter.isdecimal() or letter.isascii()


def string(literal: str) -> str:
    """Return the value of a string literal: `"…"`, or a raw string in backquotes. Raises Malformed
    if it is invalid.
    """
    is_raw = literal.startswith("`")
    body = literal[1:-1]  # without the quotes
    if is_raw:
        return body.replace("\r", "")
    return go_text(b"".join(_pieces(body, '"', literal)))


def character(literal: str) -> int:
    """Return the code point of a character literal such as `'x'`. Raises Malformed if it is
    invalid.
    """
    body = literal[1:-1]  # without the quotes
    pieces = _pieces(body, "'", literal)
    if len(pieces) == 1:  # either an escape, or text without escapes
        raw = pieces[0]
        with suppress(UnicodeDecodeError):
            text = raw.decode()
            if len(text) == 1:
                return ord(text)
        if len(raw) == 1:  # '\xff' is the number 255
            return raw[0]
    raise Malformed(f"malformed character constant: {literal}")


def _pieces(body: str, quote: str, literal: str) -> list[bytes]:
    r"""Return the bytes of each escape (such as `\n`) in a literal's body, and of each text between
    escapes, in order.

    `quote` is the literal's quotation mark. `literal` is the body in quotes, for messages. Raises
    Malformed for an invalid escape.
    """
    pieces: list[bytes] = []
    start = 0
    while start < len(body):
        if body[start] == "\\":
            escape = ESCAPE.match(body, start)
            other_quote = "'" if quote == '"' else '"'  # must not be escaped
            if escape is None or escape["simple"] == other_quote:
                raise Malformed(f"invalid escape in {literal[:40]}")
            pieces.append(_bytes_of_escape(escape, literal))
            start = escape.end()
        else:
            next_escape = body.find("\\", start)
            end = next_escape if next_escape >= 0 else len(body)
            pieces.append(go_bytes(body[start:end]))
            start = end
    return pieces


def _bytes_of_escape(escape: re.Match[str], literal: str) -> bytes:
    """Return the bytes that an escape represents: one byte, or a character in UTF-8.

    Raises Malformed if the escaped number is neither a byte nor a character.
    """
    if escape["simple"]:
        return SIMPLE[escape["simple"]].encode()
    if escape["hex_byte"]:
        return bytes((int(escape["hex_byte"], 16),))
    if escape["octal_byte"]:
        byte = int(escape["octal_byte"], 8)
        if byte <= 0xFF:
            return bytes((byte,))
    else:
        code_point = int(escape["unicode4"] or escape["unicode8"], 16)
        is_surrogate = 0xD800 <= code_point < 0xE000
        if code_point <= 0x10FFFF and not is_surrogate:
            return chr(code_point).encode()
    raise Malformed(f"invalid escape in {literal[:40]}")


def number(literal: str) -> int | float:
    """Return the value of a number literal, as an integer or a float depending on its spelling.

    Raises Malformed if the number is invalid.
    """
    if INTEGER.fullmatch(literal):
        return _integer(literal)
    if literal.endswith("i"):
        raise Malformed(f"complex numbers are not supported: {literal}")
    value: float | None = None
    with suppress(OverflowError):  # a hexadecimal float may be too large
        if HEXADECIMAL.fullmatch(literal):
            value = float.fromhex(literal.replace("_", ""))
        elif DECIMAL.fullmatch(literal):
            value = float(literal.replace("_", ""))
    if value is None:
        raise Malformed(f"illegal number syntax: {literal[:40]}")
    is_float = any(letter in ".eEpP" for letter in literal)
    if not is_float:  # a number such as 09, which is not octal; Go reports the same message
        raise Malformed(f"integer overflow: {literal}")
    if isinf(value):  # a decimal float may be too large, too
        raise Malformed(f"illegal number syntax: {literal}")
    return value


def _integer(literal: str) -> int:
    """Return the value of an integer literal (one that matches `INTEGER`). Raises Malformed if it
    is too large.
    """
    if len(literal) > 100:  # even 64 binary digits with underscores are shorter than this
        raise Malformed(f"integer overflow: {literal[:40]}")
    digits = literal.lstrip("+-").replace("_", "").lower()
    # like C, Go accepts 017 as an octal number, but Python does not
    is_c_octal = digits.isdecimal() and digits.startswith("0")
    integer = int(digits, 8) if is_c_octal else int(digits, 0)  # 0: the prefix determines the base
    if literal.startswith("-"):
        integer = -integer
    if not -LARGEST - 1 <= integer <= LARGEST:
        raise Malformed(f"{literal} overflows int")
    return integer
