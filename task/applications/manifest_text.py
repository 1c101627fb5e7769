"""Turns a file's text into manifests, and determines their kinds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from task.errors import Exit, Malformed, Trouble
from task.model import Found
from task.text import FEW
from task.yaml_documents import ManifestDocument, broken, documents

_BROKEN = Exit.CONFIGURATION  # the exit code if no other manifest was read
_APPLICATION = re.compile(
    r"(?:^|[\s{,\"'])kind[\"']?:[ \t]*[\"']?Application(?:Set)?\b",
    re.MULTILINE,
)
SUFFIXES = (".yaml", ".yml", ".json")
MOST = 4 * 1024 * 1024  # maximum bytes to search for broken files, because parsing is slow
# The Argo CD and AIU kinds. If a source may also yield many other kinds, because of a program or a
# parent Application, only these are read.
KINDS = frozenset(("Application", "ApplicationSet", "AppProject", "ImageUpdater"))


def is_set(item: Mapping[str, Any]) -> bool:
    """Return whether a manifest is an Argo CD ApplicationSet."""
    api_version = str(item.get("apiVersion", ""))
    return item.get("kind") == "ApplicationSet" and api_version.startswith("argoproj.io/")


def is_project(item: Mapping[str, Any]) -> bool:
    """Return whether a manifest is an AppProject with a name."""
    api_version = str(item.get("apiVersion", ""))
    if item.get("kind") != "AppProject" or not api_version.startswith("argoproj.io/"):
        return False
    metadata = item.get("metadata")
    return isinstance(metadata, dict) and isinstance(metadata.get("name"), str)


def makes_applications(text: str) -> bool:
    """Return whether a file contains an Application or ApplicationSet, or a Helm template that
    generates one.
    """
    return bool(_APPLICATION.search(text))


def source_warning(
    origin: str,
    message: str,
    hint: str,
    *,
    subject: str = "",
    advice: bool = False,
) -> Found:
    """Return a warning about a source, in place of a manifest. With `advice`, it is not about a
    mistake, but about a source that is not read.
    """
    trouble = Trouble.warning("source", message, hint)
    return Found({}, origin, trouble, subject=subject, advice=advice)


def found_in(content: bytes, origin: str) -> Iterator[Found]:
    """Yield the manifests in a file, including the items of each `List`, and a problem for each
    document that is not YAML.

    `origin` is the file's name in messages.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        yield source_warning(origin, f"{origin} is not UTF-8 text", "save manifests as UTF-8")
        return
    for document in documents(text):
        where = f"{origin}:{document.line}"
        if document.problem:
            message = f"{where}: not YAML: {document.problem}"
            hint = "fix the file; its other documents are used"
            trouble = Trouble("source", message, hint, severity="warning", exit=_BROKEN)
            yield Found({}, where, trouble)
        elif isinstance(document.data, (dict, list)):
            items = list(_items(document.data, where))
            has_application_set = any(found.item.get("kind") == "ApplicationSet" for found in items)
            if document.text and has_application_set:
                items = _with_types(items, document, where)
            yield from items


def or_broken(
    found: Iterable[Found],
    files: Iterable[tuple[str, bytes]],
    place: str,
) -> Iterator[Found]:
    """Yield the manifests that were found. If none of them is of a relevant kind, also yield the
    reason.

    The reason is a problem for each of the first few files that are not YAML. If there are none,
    and nothing else was reported, it is a warning that no Application was found in `place`. `files`
    are all files with their origins. They are read only to find the reason.
    """
    has_relevant = False
    has_trouble = False
    for item in found:
        has_relevant = has_relevant or item.concerns_us
        has_trouble = has_trouble or bool(item.trouble)
        yield item
    if has_relevant:
        return

    broken_files = _broken_files(files)
    yield from broken_files
    if not broken_files and not has_trouble:
        message = f"no Application was found in {place}"
        trouble = Trouble.warning("source", message, "pass the manifests of the Applications")
        yield Found({}, place, trouble, advice=True)


def _broken_files(files: Iterable[tuple[str, bytes]]) -> list[Found]:
    """Return a problem for each of the first few files that are not YAML.

    Most such files are not manifests but templates for other programs, so the messages are only
    advice. But if all files are broken, they are the manifests that the user meant, so the messages
    are more than advice.
    """
    problems: list[Found] = []
    size = 0  # size of the files read so far, in bytes
    count = 0  # number of files read so far
    for origin, content in files:
        size += len(content)
        count += 1
        if size > MOST or len(problems) == FEW:
            break
        document = next(broken(content.decode("utf-8", "replace")), None)
        if document:
            where = f"{origin}:{document.line}"
            message = f"{where}: not YAML: {document.problem}"
            hint = "no Application was found: fix the file if it has any"
            trouble = Trouble("source", message, hint, severity="warning", exit=_BROKEN)
            problems.append(Found({}, where, trouble))
    has_other_files = len(problems) < count  # always true if the loop ended early
    return [replace(problem, advice=has_other_files) for problem in problems]


def _with_types(items: list[Found], document: ManifestDocument, where: str) -> list[Found]:
    """Return a document's manifests (`items`). The ApplicationSets among them are read again, this
    time with typed scalars, as kubectl does.

    In `items`, every scalar is a string. In an ApplicationSet, how a template renders 1.10 depends
    on its type. Returns a warning instead if the document cannot be read this way.
    """
    # Imported late, because few runs read an ApplicationSet, and the template code is slow to
    # import.
    from task.applicationsets import load_all  # noqa: PLC0415

    try:
        typed_items = list(_items(load_all(document.text)[document.number], where))
    except Malformed as error:
        hint = error.hint or "fix the file; its other documents are used"
        return [source_warning(where, f"{where}: {error.message}", hint)]
    return [
        typed if typed.item.get("kind") == "ApplicationSet" else untyped
        for untyped, typed in zip(items, typed_items, strict=True)
    ]


def _items(data: dict[str, Any] | list[Any], where: str) -> Iterator[Found]:
    """Yield the manifest, or the items if it is a `List`, an `ApplicationList`, or a JSON array.

    In an `ApplicationList`, items without a kind are given the kind `Application`.
    """
    items: Any = data
    defaults = {}
    if isinstance(data, dict):
        kind = str(data.get("kind", ""))
        items = data.get("items")
        is_list = kind.endswith("List") and isinstance(items, list)
        if not is_list:
            yield Found(data, where)
            return
        # `kubectl get -o json` prints a List of whole items, but the API's own ApplicationList
        # omits their kind.
        if kind != "List":
            defaults = {"apiVersion": data.get("apiVersion"), "kind": kind.removesuffix("List")}
    for item in items:
        if isinstance(item, dict):
            yield Found({**defaults, **item}, where)
