"""`--html`: writes a page to a file, or to stdout if no file is given."""

from __future__ import annotations

import re
from typing import Any

from task.cli.grouped_help import GroupedHelp
from task.errors import UsageError
from task.output.stdout import say

_FILE = re.compile(r"-|.*\.html?|\.{0,2}/.*")  # what cannot be NAME or NAMESPACE/NAME, or will not be


class HtmlCommand(GroupedHelp):
    """A command whose `--html` may come without a file. Typer has no options with an optional value."""

    takes_a_file = False  # whether the word after `--html` may be the report to read instead of the page to write

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the value of `--html` if it is missing. Raises `UsageError` if the word after it may be a name."""
        if "--html" in args:
            at = args.index("--html")
            following = args[at + 1] if at + 1 < len(args) else "--"
            plain = [word for word in args if not word.startswith("-") or word == "-"]
            if (following.startswith("-") and following != "-") or (self.takes_a_file and len(plain) == 1):
                args = [*args[:at], "--html=-", *args[at + 1 :]]
            elif not (self.takes_a_file or ctx.resilient_parsing or _FILE.fullmatch(following)):
                raise UsageError(
                    f"--html: is {following!r} a file or an Application?",
                    hint=f"for a file, write --html={following}; for an Application, write {following} --html",
                )
        return super().parse_args(ctx, args)


def write_page(text: str, path: str) -> None:
    """Write a page to a file; `-` means stdout."""
    if path == "-":
        say(text)
        return
    try:
        with open(path, "wb") as file:
            file.write(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UsageError(
            f"--html: cannot write {path!r}: {error.strerror}", hint="choose a place that this user may write to"
        ) from None
