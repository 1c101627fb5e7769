"""Digests in Helm values: the key that an annotation names for them, and those that nobody names.

A chart that has a digest beside its tag renders both, and then container runtimes ignore the tag. So a new tag beside
an old digest changes nothing, although everything looks healthy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from task.editors.file_text import text_of
from task.editors.yaml.path import Segment, find, parse_path, path_text
from task.editors.yaml.tree import parse, resolved, walk
from task.errors import TargetError
from task.model import Files, Image, Keys, Parameter, Target

_HEX = re.compile(r"[0-9a-f]{64}")


def digest_value(image: Image, key: str, old: str) -> str:
    """Return the text for a key that gets the digest, or "" if the image has none.

    Some charts write `sha256:` themselves: if the old value lacks it, or an empty key is called `sha`, so does the new.
    """
    bare = _HEX.fullmatch(old) if old else "sha" in parse_path(key)[-1].name.lower()
    return image.digest.removeprefix("sha256:") if bare else image.digest


def digest_of(text: str) -> str:
    """Return the digest in the value of such a key."""
    return f"sha256:{text}" if _HEX.fullmatch(text) else text


def refuse_digests(files: Files, target: Target, keys: Keys, parameters: Iterable[Parameter]) -> None:
    """Raise `TargetError` if Helm gets a digest beside the tag that no annotation names.

    What counts is the last value in the order of Argo CD: the chart's own, the values files, `helm.values`, and then
    the parameters. Files that cannot be read here are passed over.
    """
    tag = keys.spec or keys.tag
    *parents, last = parse_path(tag)
    found: dict[str, tuple[str, str, str]] = {}  # key → its value, the file, and the place in it
    for path, text, steps in _layers(files, target, parents):
        found |= _beside(path, text, steps, parents, last.name)
    for one in parameters:
        *above, key = parse_path(one.name)
        value = "" if one.value == "null" and not one.force_string else one.value  # `--set` removes it
        if path_text(above) == path_text(parents) and _is_digest(key.name, last.name):
            found[path_text((*above, key))] = value, "", "the Application's parameters"
    for digest, (value, path, where) in found.items():
        if value and digest != keys.digest.replace("\\.", "."):
            hint = f"set {digest} to an empty text"
            if not (keys.digest or keys.spec):
                hint = (
                    f"annotate {target.alias or '<alias>'}.helm.image-digest: {digest}, which each update then writes"
                )
            raise TargetError(
                f"{where}: {digest} has the value {value[:80]!r}, so a chart that reads it ignores a new {tag}",
                hint=hint,
                subject=path,
            )


def _layers(files: Files, target: Target, parents: list[Segment]) -> Iterator[tuple[str, str, tuple[Segment, ...]]]:
    """Yield what Helm merges, in its order: the file ("" is `helm.values`), its text, and the tag's mapping in it."""
    paths = list(target.values)
    if target.kind == "helmvalues" and not {target.path, *target.fallbacks} & {*paths}:
        paths += [path for path in (target.path, *target.fallbacks) if path in files][:1]
    for path in paths:
        try:
            text = text_of(files, path) or ""
        except TargetError:
            continue
        below = path.endswith(f"/charts/{parents[0].name}/values.yaml") if parents else False
        yield path, text, tuple(parents[1:] if below else parents)
    yield "", target.source.values, tuple(parents)


def _beside(
    path: str, text: str, steps: tuple[Segment, ...], parents: list[Segment], tag: str
) -> dict[str, tuple[str, str, str]]:
    """Return the digests beside the tag in one text: the whole key → its value, the file, and the place in it."""
    if not re.search("digest|sha", text, re.IGNORECASE):  # most files, which need no parsing then
        return {}
    found = {}
    try:
        tree = parse(text)
        for document in tree.documents[:1]:
            names = {node.value for node in walk(document.root) if node.kind == "scalar"}
            for name in sorted(one for one in names if _is_digest(one, tag)):
                key = Segment(name, (), name)
                for node in find(tree, document, (*steps, key), merges=True):
                    value = resolved(document, node)
                    if value.kind == "scalar":
                        where = f"line {tree.line(node)}" if path else "the Application's helm.values"
                        found[path_text((*parents, key))] = "" if value.null else value.value, path, where
    except TargetError:
        return {}
    return found


def _is_digest(name: str, tag: str) -> bool:
    """Tell whether a key beside a tag's key is called as charts call the tag's digest."""
    name, tag = (re.sub("[_-]", "", one).lower() for one in (name, tag))
    stem = tag.removesuffix("tag")
    return name in {f"{one}{kind}" for one in ("", "image", stem) for kind in ("digest", "sha", "sha256")}
