"""Reads the files that `.image-update/config` names: templates for commit messages, and public keys."""

from __future__ import annotations

from dataclasses import replace

from task.editors.file_text import text_of
from task.errors import Malformed, TargetError
from task.model import Demand, Files
from task.templates.commit_message import LONGEST, check_template


def template_in(files: Files, path: str, line: int) -> str:
    """Return the template's text. Raises TargetError, which has the line of the config that names the template."""
    where = f"line {line}: "
    try:
        text = text_of(files, path)
    except TargetError as error:
        raise TargetError(
            f"{where}commit.template: {path}: {error.message}", hint="name a text file of this repository"
        ) from error
    if text is None:
        raise TargetError(f"{where}commit.template: there is no file {path}", hint="add it, or correct the path")
    if len(text) > LONGEST:
        raise TargetError(f"{where}commit.template: {path} is larger than 64 KiB", hint="shorten it")
    try:
        check_template(text)
    except Malformed as error:
        raise TargetError(f"{where}commit.template: {path}: {error.message}", hint=error.hint) from error
    return text


def with_keys(demand: Demand, files: Files) -> Demand:
    """Return the demand with the texts of its keys. Raises TargetError, which has the line of the config."""
    texts = []
    for path in demand.keys:
        where = f"line {demand.line}: {path}: "
        try:
            text = text_of(files, path)
        except TargetError as error:
            raise TargetError(f"{where}{error.message}", hint="name a text file of this repository") from error
        if text is None:
            raise TargetError(f"{where}there is no such file", hint="add the public key, or correct the path")
        if len(text) > LONGEST:
            raise TargetError(f"{where}it is larger than 64 KiB", hint="name a file with public keys only")
        texts.append((path, text))
    return replace(demand, texts=tuple(texts))
