"""Determines which files a kustomization reads. A kustomization may refer only to files and folders
in the same repository. Pure.

Kustomize itself would fetch anything that looks like a URL. So before it runs, every reference to
a file or folder in a kustomization is checked.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import accumulate
from typing import Any

from task.errors import Malformed
from task.plain_data import elements
from task.yaml_documents import plain

NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")  # in Kustomize's order
MOST_FOLDERS = 500
# these keys may refer to other folders; all other keys refer to the kustomization's own folder
FOLDERS = (
    "resources",
    "bases",
    "components",
)
_CLUSTER = "or read its Applications with --applications cluster"
_CHARTS = (
    "it would fetch a Helm chart",
    f"commit the chart's rendered manifests, {_CLUSTER}",
)
_PLUGINS = ("it may run a program", f"use patches instead, {_CLUSTER}")
# Keys for plugins and Helm. Most of these require Kustomize flags that we do not pass.
_REFUSED = {
    **dict.fromkeys(("generators", "transformers", "validators"), _PLUGINS),
    **dict.fromkeys(("helmCharts", "helmChartInflationGenerator"), _CHARTS),
}
# Kustomize ignores the case of keys: it uses only one of `resources` and `Resources`.
_KEYS = frozenset((
    *_REFUSED, *FOLDERS, "apiVersion", "buildMetadata", "commonAnnotations", "commonLabels", "configMapGenerator",
    "configurations", "crds", "generatorOptions", "helmGlobals", "imageTags", "images", "kind", "labels", "metadata",
    "namePrefix", "nameSuffix", "namespace", "openapi", "patches", "patchesJson6902", "patchesStrategicMerge",
    "replacements", "replicas", "secretGenerator", "sortOptions", "vars",
))  # fmt: skip
# keys that do not change the manifests, in lowercase
_HARMLESS = {
    "apiversion",
    "kind",
    "metadata",
    "resources",
    "bases",
    "sortoptions",
    "buildmetadata",
}
_URL = re.compile(r"\s*(?:[\w.-]+=)?\s*(?:https?:|[a-z][a-z0-9+.-]*:+//|git::|git@)", re.IGNORECASE)
# Kustomize never opens the values of these keys, so they may be URLs.
_TEXTS = frozenset((
    "annotations", "commonannotations", "commonlabels", "labels", "literals", "metadata", "options", "pairs", "patch",
))  # fmt: skip
# If the folder does not exist, Kustomize treats such a value as a repository, even without a
# scheme.
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)+[/:]|[^?]*(?://|\?(?:ref|version)=)")
_NOT_HERE = f"Kustomize would fetch it: commit a copy, {_CLUSTER}"
_ABSENT = "fix the entry, or commit the file or folder"
_SPELLING = "spell the key as in Kustomize's documentation, including upper and lower case"
_LINKED = "replace the link with the actual file or folder"


def kustomization_in(files: Collection[str], folder: str) -> str:
    """Return the path of the folder's kustomization among these files, or ""."""
    for name in NAMES:
        path = posixpath.join(folder, name)
        if path in files:
            return path
    return ""


def path_at(folder: str, entry: str) -> str:
    """Return the path that an entry in a folder's kustomization refers to, relative to the top
    (usually the repository's root): `base` for `../base` in `web`.

    "" is the top itself.
    """
    path = posixpath.normpath(posixpath.join(folder, entry))
    return "" if path == "." else path


def needed(
    folder: str,
    read: Callable[[str], Mapping[str, str]],
    links: Collection[str] = frozenset(),
) -> dict[str, str]:
    """Return the texts of all files that a folder's kustomization needs, by path relative to the
    top (usually the repository's root).

    `read` returns the files in or below a folder, except symbolic links. `links` are the links
    found so far; `read` may add more. For anything that would be fetched, is outside the
    repository, or does not exist, raises a `Malformed` that names the kustomization.
    """
    files = dict(read(folder))
    folders_read = [folder]  # the files in and below these folders are in `files`
    waiting = [folder]  # folders whose kustomizations must be checked
    checked = set[str]()
    while waiting:
        current_folder = waiting.pop(0)
        if current_folder in checked:
            continue
        checked.add(current_folder)
        if len(checked) > MOST_FOLDERS:
            raise Malformed(
                f"the kustomization needs more than {MOST_FOLDERS} folders",
                "use a smaller kustomization",
            )
        path = kustomization_in(files, current_folder)
        if not path:
            raise Malformed(
                f"{current_folder or 'the root'} has no kustomization.yaml",
                "check the reference to this folder",
            )

        for entry in references_in(files[path], path):
            target = _inside(current_folder, entry, path)
            if target in files:  # the target is a manifest, not a folder
                continue
            is_read = any(_is_below(target, folder_read) for folder_read in folders_read)
            if not is_read:
                files.update(read(target))
                folders_read.append(target)
            has_files = any(_is_below(file, target) for file in files)
            if not has_files:
                raise _absent(entry, target, path, links)
            waiting.append(target)  # the target is a folder
    return files


def _inside(folder: str, entry: str, path: str) -> str:
    """Return the path that an entry refers to, relative to the top.

    `path` is the kustomization, in `folder`. Raises `Malformed` if the entry refers to a path
    outside the repository.
    """
    target = path_at(folder, entry)
    is_outside = target == ".." or target.startswith("../") or entry.startswith("/")
    if is_outside:
        raise Malformed(
            f"{path}: {entry[:200]!r} points outside the repository",
            "copy the files into the repository",
        )
    return target


def _is_below(path: str, folder: str) -> bool:
    """Return whether a path is `folder` itself or is below it. "" is the top."""
    return not folder or path == folder or path.startswith(f"{folder}/")


def _absent(entry: str, target: str, path: str, links: Collection[str]) -> Malformed:
    """Return the error for an entry of the kustomization at `path` that refers to `target`, where
    there are no files.
    """
    # for `apps/web/base`: `apps`, `apps/web`, `apps/web/base`
    parents_and_target = accumulate(target.split("/"), posixpath.join)
    if any(folder in links for folder in parents_and_target):
        return Malformed(f"{path}: {entry[:200]!r} is a symbolic link or inside one", _LINKED)
    hint = _NOT_HERE if _HOST.match(entry) else _ABSENT
    return Malformed(f"{path}: {entry[:200]!r} is not in the repository", hint)


def references_in(text: str, path: str) -> Iterator[str]:
    """Check a kustomization (`text`), and yield its references to files and folders, as written.

    Raises `Malformed` if Kustomize would fetch something or run a program, and for anything that
    Kustomize might interpret differently than this check does. `path` is the kustomization's path,
    for messages.
    """
    kustomization = _parsed_kustomization(text, path, exact=True)
    for key, (why, hint) in _REFUSED.items():
        if kustomization.get(key):
            raise Malformed(f"{path}: {key} is not rendered: {why}", hint)
    for string in _texts_in(kustomization):
        if _URL.match(string):
            raise Malformed(f"{path}: {string.strip()[:200]!r} is not in the repository", _NOT_HERE)
    for key in kustomization:
        if key not in _KEYS:
            raise Malformed(f"{path}: {str(key)[:200]!r} is not a kustomization key", _SPELLING)
    yield from entries(kustomization)


def entries(kustomization: Mapping[str, Any]) -> Iterator[str]:
    """Yield the references to files and folders in a parsed kustomization, as written. Unlike
    `references_in`, this checks nothing.
    """
    for key in FOLDERS:
        yield from (
            element for element in elements(kustomization.get(key)) if isinstance(element, str)
        )


def changes(text: str, namespace: str = "") -> bool:
    """Return whether a kustomization changes the manifests that it lists, or includes manifests
    from outside its folder.

    `namespace` is the default for manifests without one, so a kustomization that sets the same
    namespace does not change anything. Returns True if the kustomization is unreadable.
    """
    try:
        kustomization = parsed_kustomization(text, "")
    except Malformed:
        return True
    return changes_manifests(kustomization, namespace) or reaches_out(text)


def changes_manifests(kustomization: Mapping[str, Any], namespace: str = "") -> bool:
    """Return whether a parsed kustomization does more than list manifests and set `namespace`."""
    for key, value in kustomization.items():
        sets_same_namespace = key == "namespace" and value == namespace
        is_harmless = key in _HARMLESS or sets_same_namespace
        if value and not is_harmless:
            return True
    return False


def reaches_out(text: str) -> bool:
    """Return whether a kustomization includes manifests from outside its folder, such as `../base`
    or a URL. Returns False if it is unreadable.
    """
    try:
        kustomization = parsed_kustomization(text, "")
    except Malformed:
        return False
    for entry in entries(kustomization):
        is_outside = posixpath.normpath(entry).startswith("..")
        if is_outside or _URL.match(entry):
            return True
    return False


def listed(folder: str, files: Mapping[str, str]) -> list[str] | None:
    """Return the paths of the manifests that a folder's kustomization lists, either directly or
    through other kustomizations.

    Returns None if one of the kustomizations changes manifests, because then Kustomize must run.
    `files` are the texts of all files that they need, as returned by `needed`.
    """
    manifests = list[str]()
    waiting = [folder]
    folders_read = set[str]()
    while waiting:
        current_folder = waiting.pop(0)
        if current_folder in folders_read:
            continue
        folders_read.add(current_folder)
        path = kustomization_in(files, current_folder)
        kustomization = parsed_kustomization(files[path], path)
        if changes_manifests(kustomization):
            return None
        for entry in references_in(files[path], path):
            target = path_at(current_folder, entry)
            if target in files:
                manifests.append(target)
            else:
                waiting.append(target)  # the target is a folder
    return manifests


def parsed_kustomization(text: str, path: str) -> dict[str, Any]:
    """Return the kustomization with lowercase keys, because Kustomize ignores case.

    Raises Malformed if the file is not a kustomization.
    """
    return {str(key).lower(): value for key, value in _parsed_kustomization(text, path).items()}


def _parsed_kustomization(text: str, path: str, *, exact: bool = False) -> dict[Any, Any]:
    """Return the kustomization as written. Raises Malformed if it is not a mapping.

    With `exact`, constructs that YAML parsers interpret differently are rejected. `path` is for the
    message.
    """
    try:
        data = plain(text, exact=exact)
    except Malformed as error:
        raise Malformed(
            f"{path}: {error.message}",
            error.hint or "fix the kustomization",
        ) from None
    if not isinstance(data, dict):
        raise Malformed(f"{path} is not a kustomization", "use a mapping with resources")
    return data


def _texts_in(value: Any) -> Iterator[str]:
    """Yield all strings in a parsed kustomization that Kustomize may open as a file or a URL.

    Raises `Malformed` for a merge key, because the merged content is not checked here.
    """
    waiting = [value]
    seen_ids = set[int]()  # aliases share a value, and a value may contain itself
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
            continue
        if id(item) in seen_ids:
            continue
        seen_ids.add(id(item))
        if isinstance(item, list):
            waiting += item
        elif isinstance(item, dict):
            if "<<" in item:
                raise Malformed(
                    "a kustomization with a merge key (<<) is not rendered",
                    "write out the merged keys",
                )
            for key, field_value in item.items():
                if str(key).lower() not in _TEXTS:
                    waiting.append(field_value)
