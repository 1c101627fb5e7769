"""The configs of the repositories that lie here, for `lint`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from task.annotations.lint import Finding
from task.errors import Malformed, TargetError
from task.files import read_text
from task.model import File, Files, Subscription
from task.pipeline.discover import Locate
from task.registry.signature import public_keys
from task.repository_config.config import MISTAKEN, PATH, RepositoryConfig, unmatched
from task.repository_config.reading import LARGEST, NOT_READ, check_config, template_in, with_keys
from task.templates.commit_message import LONGEST
from task.urls import normal_url

_LINE = re.compile(r"\bline (\d+)")


def config_findings(
    sources: Iterable[str], subs: Sequence[Subscription], locate: Locate
) -> Iterator[tuple[Finding, str, int]]:
    """Yield an error for each mistake in a config, and a warning for each rule that matches no Application.

    Each comes with its file and line. Rules are compared with the subscriptions that write to the config's repository.
    If none does, nothing is said about them. A config is looked for at the root
    of the work tree that a file or folder of Applications lies in.
    """
    for path in dict.fromkeys(_config_of(source) for source in sources if os.path.exists(source)):
        yield from _misplaced(path)
        if not os.path.isfile(path):
            continue
        try:
            config, mistakes = check_config(read_text(path, 4 * LARGEST))  # bytes of a letter
        except (OSError, UnicodeDecodeError) as error:
            yield _placed(path, f"cannot be read: {error}", "write a file in UTF-8")
        else:
            wrong = [_placed(path, one.message, one.hint) for one in mistakes]
            yield from sorted(wrong, key=lambda one: one[2])
            yield from _of_templates(path, config.templates)
            yield from _of_keys(path, config)
            found = locate(f"{path}:0") if config.rules or config.freezes else None
            ours = [sub for sub in subs if found and same_repository(sub.repo, found[0])]
            number = len({sub.application.key for sub in ours})
            for what, line in unmatched(config, ours) if ours else ():
                message = f"{what} matches none of the {number} Applications read that write to this repository"
                if number == 1:
                    message = f"{what} does not match the one Application read that writes to this repository"
                hint = "correct the names and globs of its match, or remove it"
                yield Finding("", "", "", "warning", message, hint, f"{path}:{line}"), path, line


def _misplaced(config: str) -> Iterator[tuple[Finding, str, int]]:
    """Yield what people take for the config, although it is not read."""
    if os.path.isdir(config):
        hint = f"write one file, {PATH}"
        yield Finding("", "", "", "warning", f"the folder {PATH} is not read", hint, config), config, 0
    for name in MISTAKEN:
        if os.path.isfile(path := f"{config.removesuffix(PATH)}{name}"):
            yield _placed(path, f"{name} {NOT_READ} {PATH}", f"rename it to {PATH}, or delete it")


def same_repository(one: str, other: str) -> bool:
    """Tell whether two URLs name one repository, even if one is for ssh and the other for https."""
    first, second = (normal_url(url).partition("://")[2].rpartition("@")[2] for url in (one, other))
    return first == second


def _of_templates(config: str, templates: Iterable[tuple[str, int]]) -> Iterator[tuple[Finding, str, int]]:
    top = os.path.dirname(os.path.dirname(config))
    for path, line in templates:
        try:
            template_in(files_to(top, path), path, line)
        except TargetError as error:
            yield _placed(config, error.message, error.hint)


def _of_keys(config: str, read: RepositoryConfig) -> Iterator[tuple[Finding, str, int]]:
    """Yield an error for each public key that the config names, and that cannot be read."""
    top = os.path.dirname(os.path.dirname(config))
    wishes = (read.wishes, *(rule.wishes for rule in read.rules))
    for demand in (demand for one in wishes for demand in (one.signatures, one.provenance) if demand):
        try:
            files = {name: file for path in demand.keys for name, file in files_to(top, path).items()}
            for path, text in with_keys(demand, files).texts:
                try:
                    public_keys(text)
                except Malformed as error:
                    message = f"line {demand.line}: {path}: {error.message}"
                    raise TargetError(message, hint=error.hint) from error
        except TargetError as error:
            yield _placed(config, error.message, error.hint)


def files_to(top: str, path: str, largest: int = 10 * LONGEST) -> Files:
    """Return the path and the folders above it as Git would have them."""
    found: dict[str, File] = {}
    parts = path.split("/")
    for number in range(1, len(parts) + 1):
        name = "/".join(parts[:number])
        here = os.path.join(top, name)
        if os.path.islink(here):
            found[name] = File("", "120000")
            break
        if os.path.isdir(here):
            found[name] = File("", "040000")
        elif os.path.exists(here):
            found[name] = _file(here, largest)
    return found


def _file(path: str, largest: int) -> File:
    try:
        return File(read_text(path, largest))
    except (OSError, UnicodeDecodeError) as error:
        return File("", problem=str(error))


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
