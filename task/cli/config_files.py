"""The configs of the repositories that lie here, for `lint`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from task.annotations.lint import Finding
from task.errors import TargetError
from task.files import read_text
from task.repository_config.config import PATH
from task.repository_config.reading import LARGEST, read_config

_LINE = re.compile(r"\bline (\d+)")


def config_findings(sources: Iterable[str]) -> Iterator[tuple[Finding, str, int]]:
    """Yield an error for each config with a mistake, with its file and line.

    A config is looked for at the root of the work tree that a file or folder of Applications lies in.
    """
    for path in dict.fromkeys(_config_of(source) for source in sources if os.path.exists(source)):
        if not os.path.isfile(path):
            continue
        try:
            read_config(read_text(path, 4 * LARGEST))  # bytes of a letter
        except TargetError as error:
            yield _placed(path, error.message, error.hint)
        except (OSError, UnicodeDecodeError) as error:
            yield _placed(path, f"cannot be read: {error}", "write a file in UTF-8")


def _placed(path: str, message: str, hint: str) -> tuple[Finding, str, int]:
    line = int(found[1]) if (found := _LINE.search(message)) else 0
    origin = f"{path}:{line}" if line else path
    said = message.removeprefix(f"line {line}: ").removesuffix(f", line {line}")
    return Finding("", "", "", "error", said, hint, origin), path, line


def _config_of(source: str) -> str:
    """Return where the config of a source would be: at the root of its work tree, or else in its folder."""
    folder = source if os.path.isdir(source) else os.path.dirname(source) or "."
    top = os.path.realpath(folder)
    while not os.path.exists(os.path.join(top, ".git")):
        above = os.path.dirname(top)
        if above == top:
            return os.path.normpath(os.path.join(folder, PATH))
        top = above
    return os.path.relpath(os.path.join(top, PATH))
