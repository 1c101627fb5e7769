"""Makes untrusted text safe to print: terminals, logs, and CI systems do not interpret the text,
and people can still read it.

GitHub's runner interprets a line of output as a command if it begins with `::` after optional
whitespace, or contains `##[` (the older form; Azure Pipelines does the same with `##vso[`). The
runner compares text with .NET's default comparison, so it ignores some invisible characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from os.path import commonprefix
from typing import Any

import re2

FEW = 5  # how many names a message lists at most
_BRACKET = re.compile(r"(##\w*)\[")
_OVERLOOKED = re.compile("[\u034f\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
# Possible credentials in text: everything up to the last @ before a slash, a space, or a quote,
# provided that a host may follow.
_PLAIN = r"[^\s/'\"]*(?=@[\w\[.-])"
# A password with an unescaped slash, quote, or space, which starts where a port could be. If it
# contains a quote or a space, a host and a path must follow, and it must not begin with a space or
# a port: `https://host: told by me@example.com` is just a message. Both patterns are bounded, so
# that long lines are not slow.
_NO_PORT = r"(?!\d*(?:[/?#\s'\"]|$))"
_SLASHED = rf"{_NO_PORT}[^\s'\"]{{0,2000}}(?=@[\w\[.-])"
_QUOTED = rf"{_NO_PORT}(?!\s)(?:(?!://)[^\r\n]){{0,2000}}(?=@[\w.-]+(?::\d+)?(?:[/'\"]|$))"
_PASSWORD = f"(?:{_SLASHED}|{_QUOTED})"
_LOGIN = re.compile(
    rf"(ssh://[^\s/@:'\"]*):(?:{_PLAIN}|{_PASSWORD})"
    rf"|(?<!ssh)(://)(?:{_PLAIN}|[^\s/@:\['\"]*:{_PASSWORD})@",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"[^\s<>@]+@[^\s<>@]+")
# In JSON, escape the `#` before a bracket as \u0023, which every JSON parser decodes.
_JSON_HASH = re.compile(
    "#(?=[#\\w\u034f\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]*\\[)"
)
_IN_GLOB = {
    "*": "[^/]*",
    "**": ".*",
    "/**/": "/(?:.*/)?",
}


def is_name(text: str) -> bool:
    """Return whether this can be the name of a commit author. Git puts the address between
    < and >.
    """
    has_brackets = "<" in text or ">" in text
    return text.isprintable() and not has_brackets


def is_address(text: str) -> bool:
    """Return whether the text is an email address and nothing else.

    Git accepts any text as an address, but Git hosts cannot match such text to a person.
    """
    return text.isprintable() and _ADDRESS.fullmatch(text) is not None


def printable(text: str) -> str:
    """Make untrusted text safe to print on a single line: escape invisible characters, and hide
    commands from CI runners.
    """
    return harmless(visible(text))


def shortened(text: str, longest: int = 200) -> str:
    """Shorten a long text to its beginning, so that a message can quote it."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def both_ends(text: str, longest: int) -> str:
    """Shorten a long text to its beginning and end.

    In a tool's error message, the reason often comes last.
    """
    if len(text) <= longest:
        return text
    head = longest // 3
    tail = longest - head
    return f"{text[:head]} … {text[-tail:]}"


def blanked(text: str) -> str:
    """Replace each unprintable character, including line endings, with a space, so that terminals
    do not interpret the text.
    """
    return "".join(char if char.isprintable() else " " for char in text)


def one_line(text: str) -> str:
    """Return the words of a string on one line, separated by single spaces, for a message that
    quotes a server.
    """
    return " ".join(blanked(text).split())


def without_logins(text: str) -> str:
    """Remove users and passwords from the URLs in a string.

    The user in an SSH URL is part of the address and is kept.
    """
    return _LOGIN.sub(r"\1\2", text) if "://" in text else text


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or plural: `1 image`, `2 images`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def and_more(texts: Sequence[str], most: int = FEW, separator: str = ", ") -> str:
    """Return the first `most` strings, and how many others there are: "web, api and 3 more"."""
    rest = len(texts) - most
    more = f" and {rest} more" if rest > 0 else ""
    return separator.join(texts[:most]) + more


def fits_glob(glob: str, text: str) -> bool:
    """Return whether a glob matches the whole string. `*` does not match `/`, but `**` does. No
    glob makes this slow.
    """
    try:
        return _compiled_glob(glob).fullmatch(text) is not None
    except UnicodeEncodeError:  # globs do not contain such characters (lone surrogates)
        return False


@lru_cache(maxsize=1024)
def _compiled_glob(glob: str) -> Any:
    """Return the compiled RE2 pattern for a glob. RE2 takes linear time, whatever the pattern."""
    parts = re.split(r"(/\*\*/|\*\*|\*)", glob)  # wildcards, and the text between them
    pattern = "".join(_IN_GLOB.get(part) or re2.escape(part) for part in parts)
    return re2.compile(f"(?s){pattern}")


def printable_lines(text: str) -> str:
    """Make a multi-line untrusted text, such as a diff, `printable` line by line."""
    return "\n".join(map(printable, text.split("\n")))


def visible(text: str) -> str:
    """Make invisible characters visible: an escape becomes `^[`, and a character that reverses text
    becomes `<U+202E>`.

    Credentials in URLs are removed, because messages quote annotations, and a `git-repository`
    annotation may contain a password.
    """
    text = without_logins(text)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\t" else _escaped_char(char) for char in text
    )


def harmless(text: str) -> str:
    """Insert a backslash into every line that a CI runner would interpret: before a leading `::`,
    and inside `##[`.
    """
    has_marks = "::" in text or "##" in text
    if text.isascii() and not has_marks:
        return text
    return "\n".join(map(_harmless_line, text.split("\n")))


def exact_json(text: str) -> str:
    """Return JSON text with the same meaning in which everything that a terminal or CI runner would
    interpret is escaped: `##[` and invisible characters.
    """
    if "#" in text:
        text = _JSON_HASH.sub("\\\\u0023", text)
    if text.isascii() and "\x7f" not in text:
        return text
    return "\n".join(
        line if line.isprintable() else "".join(map(_json_escape, line))
        for line in text.split("\n")
    )


def _harmless_line(line: str) -> str:
    """Return the line with a backslash in a leading `::` or in `##[`, so that CI runners do not
    interpret it as a command.

    Runners ignore some invisible characters inside these markers. Such characters become visible.
    """
    if not line.isascii():
        compared = _OVERLOOKED.sub("", line)  # the line as the CI runner compares it
        is_command = compared.lstrip().startswith("::") or _BRACKET.search(compared)
        if is_command:
            line = _OVERLOOKED.sub(lambda match: _escaped_char(match[0]), line)
    unindented = line.lstrip()
    if unindented.startswith("::"):
        indentation = line.removesuffix(unindented)
        line = f"{indentation}\\{unindented}"
    return _BRACKET.sub(r"\1\\[", line)


def _escaped_char(char: str) -> str:
    """Return a visible replacement for an invisible character."""
    number = ord(char)
    is_control_character = number < 32 or number == 127
    if is_control_character:
        return f"^{chr(number ^ 64)}"  # as in `cat -v`: the escape character becomes ^[
    return f"<U+{number:04X}>"


def _json_escape(char: str) -> str:
    """Return a character, or its JSON escapes (one per UTF-16 code unit) if it is invisible."""
    if char.isprintable():
        return char
    data = char.encode("utf-16-be", "surrogatepass")  # two bytes per code unit
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


def go_float(number: float) -> str:
    """Return the shortest string that parses back to the same number, like Go's %v.

    Negative numbers are not supported.

    Numbers from a million upward have an exponent (`1e+06`). Python's `repr` only uses one from
    1e16 upward.
    """
    # `digits` are the significant digits, and `point` is the position of the decimal point relative
    # to them: 0.00125 has the digits 125 and the point -2, because 0.00125 = 0.125 * 10 ** -2.
    mantissa, _, power = f"{number!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    all_digits = whole + fraction
    digits = all_digits.lstrip("0")
    leading_zeros = len(all_digits) - len(digits)
    point = len(whole) + int(power or 0) - leading_zeros
    digits = digits.rstrip("0")
    if not digits:
        return "0"

    exponent = point - 1
    needs_exponent = exponent < -4 or exponent >= 6
    if needs_exponent:
        later_digits = digits[1:]
        fraction = f".{later_digits}" if later_digits else ""
        sign = "-" if exponent < 0 else "+"
        return f"{digits[0]}{fraction}e{sign}{abs(exponent):02d}"
    if point <= 0:
        return "0." + "0" * -point + digits
    if point >= len(digits):
        return digits.ljust(point, "0")
    return f"{digits[:point]}.{digits[point:]}"


def nearest(word: str, known: Iterable[str], most: int = 2) -> str:
    """Return the word in `known` that is most similar to `word`, or "" if every known word differs
    from it by more than `most` characters.

    Case does not count as a difference, and neither does `_` or `.` instead of `-`. A word with the
    same parts in a different order (`tags-allow` for `allow-tags`) is returned immediately.
    """
    spelling = normal_spelling(word)
    parts = _sorted_parts(word)
    nearest_key = ""
    least_distance = most + 1
    for key in known:
        if spelling == normal_spelling(key) or parts == _sorted_parts(key):
            return key
        distance = differ(spelling, normal_spelling(key), least_distance)
        if distance < least_distance:
            nearest_key = key
            least_distance = distance
    return nearest_key


@lru_cache(maxsize=4096)
def normal_spelling(word: str) -> str:
    """Return a word in lowercase, with `_` and `.` replaced by `-`."""
    return word.lower().replace("_", "-").replace(".", "-")


@lru_cache(maxsize=4096)
def _sorted_parts(key: str) -> Sequence[str]:
    """Return the parts of a key in alphabetical order, because people mix up their order.
    `allow-tags` has the parts `allow` and `tags`.
    """
    return sorted(re.split(r"[-._]+", key.lower()))


def differ(word: str, other: str, limit: int) -> int:
    """Return the number of characters by which two words differ (inserted, dropped, replaced, or
    swapped), but at most `limit`.

    This is the Damerau-Levenshtein distance. The calculation stops as soon as the result is at
    least `limit`, because a manifest may contain many long keys.
    """
    if abs(len(word) - len(other)) >= limit:
        return limit
    # the common prefix does not count
    start = len(commonprefix((word, other)))  # noqa: RUF071 - words, not paths
    word = word[start:]
    other = other[start:]
    if not word or not other:  # one word is a prefix of the other
        return min(limit, len(word) + len(other))

    # Each row contains the distances between the first i letters of `word` and the first j letters
    # of `other`, for every j.
    row_before_last: list[int] = []
    last_row = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        row = [i]
        for j, other_letter in enumerate(other, 1):
            dropped = last_row[j] + 1
            inserted = row[-1] + 1
            replaced = last_row[j - 1]
            if letter != other_letter:
                replaced += 1
            distance = min(dropped, inserted, replaced)
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == other_letter:
                swapped = row_before_last[j - 2] + 1  # swapped letters, such as `ab` for `ba`
                distance = min(distance, swapped)
            row.append(distance)
        # no later row can contain a distance smaller than the smallest in two consecutive rows
        is_limit_reached = min(row) >= limit and min(last_row) >= limit
        if is_limit_reached:
            return limit
        row_before_last = last_row
        last_row = row
    return min(last_row[-1], limit)
