"""Makes untrusted text safe to print: no terminal, log or CI system obeys it, and a person can still read it.

GitHub's runner reads commands from the output of a step: a line that begins with `::` after any white space, or that
holds `##[` anywhere (the older form; Azure Pipelines reads `##vso[` likewise). It compares as .NET does by default,
which overlooks characters without a shape of their own.
"""

from __future__ import annotations

import re

_BRACKET = re.compile(r"(##\w*)\[")
_OVERLOOKED = re.compile("[\u034f\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_LOGIN = re.compile(r"(ssh://[^\s/@:'\"]*):[^\s/@'\"]*(?=@)|(?<!ssh)(://)[^\s/@'\"]*@", re.IGNORECASE)
# The `#` before a bracket within JSON becomes \u0023, which every JSON reader turns back.
_JSON_HASH = re.compile("#(?=[#\\w\u034f\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]*\\[)")


def printable(text: str) -> str:
    """An untrusted text for one line: invisible characters are escaped, and no runner takes it for a command."""
    return harmless(visible(text))


def shortened(text: str, longest: int = 200) -> str:
    """The beginning of a long text, for messages that quote it."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def both_ends(text: str, longest: int) -> str:
    """The beginning and the end of a long text: of a tool's error, the reason often comes last."""
    if len(text) <= longest:
        return text
    head = longest // 3
    return f"{text[:head]} … {text[head - longest :]}"


def blanked(text: str) -> str:
    """The text with a blank for each unprintable character, line ends included, so that no terminal obeys it."""
    return "".join(char if char.isprintable() else " " for char in text)


def one_line(text: str) -> str:
    """The words of a text on one line with one blank between them, for a message that quotes a server."""
    return " ".join(blanked(text).split())


def without_logins(text: str) -> str:
    """The text without users and passwords in its URLs. The user of an ssh URL belongs to its address and stays."""
    return _LOGIN.sub(r"\1\2", text) if "://" in text else text


def printable_lines(text: str) -> str:
    """An untrusted text of several lines, such as a diff, made `printable` line by line."""
    return "\n".join(map(printable, text.split("\n")))


def visible(text: str) -> str:
    """The text with its invisible characters made visible: `^[` for an escape, `<U+202E>` for one that turns text.

    Logins in URLs are removed, because messages quote annotations, and a `git-repository` may hold a password.
    """
    text = without_logins(text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\t" else _shown(char) for char in text)


def harmless(text: str) -> str:
    """The text with a backslash in every line that a runner would obey, before a leading `::` and within `##[`."""
    if text.isascii() and "::" not in text and "##" not in text:
        return text
    return "\n".join(map(_disobeyed, text.split("\n")))


def exact_json(text: str) -> str:
    """JSON text with the same meaning, without a line that a terminal or a runner would obey."""
    if "#" in text:
        text = _JSON_HASH.sub("\\\\u0023", text)
    if text.isascii() and "\x7f" not in text:
        return text
    return "\n".join(line if line.isprintable() else "".join(map(_json, line)) for line in text.split("\n"))


def _disobeyed(line: str) -> str:
    if not line.isascii():
        seen = _OVERLOOKED.sub("", line)  # the line as the runner compares it
        if seen.lstrip().startswith("::") or _BRACKET.search(seen):
            line = _OVERLOOKED.sub(lambda match: _shown(match[0]), line)
    start = line.lstrip()
    if start.startswith("::"):
        line = f"{line[: len(line) - len(start)]}\\{start}"
    return _BRACKET.sub(r"\1\\[", line)


def _shown(char: str) -> str:
    number = ord(char)
    # ASCII's control characters in the way of `cat -v`: ^[ is the escape.
    return f"^{chr(number ^ 64)}" if number < 32 or number == 127 else f"<U+{number:04X}>"


def _json(char: str) -> str:
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
