"""Digests in Helm values: the key that an annotation names, and other keys of a chart that hold one.

A chart that has a digest beside its tag renders both, and then container runtimes ignore the tag. So a new tag beside
an old digest changes nothing, although everything looks healthy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from task.editors.file_text import chosen, text_of
from task.editors.yaml.path import Segment, entries, item, parse_path, path_text
from task.editors.yaml.tree import parse, resolved, walk
from task.errors import TargetError
from task.model import Files, Image, Keys, Parameter, Target

_HEX = re.compile(r"[0-9a-f]{64}")
_DIGEST = re.compile(r"(?:sha256:)?[0-9a-f]{64}")
_NAMES = re.compile("(?:digest|sha|sha256)$")  # with any value
_WORDS = re.compile("digest|sha256|sha|hash", re.IGNORECASE)  # with a digest as its value
# A text that may set one. Most texts set none, so they need not be parsed.
_SET = re.compile(r"(?:digest|sha|sha256)[\"']?\s*:\s*(?!\"\"|''|~|null\b)\S|[0-9a-f]{64}", re.IGNORECASE)


def digest_value(image: Image, key: str, old: str) -> str:
    """Return the text for a key that gets the digest, or "" if the image has none.

    Some charts add `sha256:` themselves. If the old value lacks it, or an empty key is called `sha`, the new one does.
    """
    bare = _HEX.fullmatch(old) if old else "sha" in parse_path(key)[-1].name.lower()
    return image.digest.removeprefix("sha256:") if bare else image.digest


def digest_of(text: str) -> str:
    """Return the digest in the value of such a key."""
    return f"sha256:{text}" if _HEX.fullmatch(text) else text


def known_digest(files: Files, target: Target, keys: Keys, parameters: Iterable[Parameter]) -> str:
    """Return what Helm gets at the key for the digest now.

    Raises `TargetError` if Helm gets a digest beside the tag that no annotation names. What counts is the last value in
    the order of Argo CD: the chart's own, the values files, `helm.values`, and then the parameters. Files that cannot
    be read here are passed over.
    """
    tag = keys.spec or keys.tag
    steps = parse_path(tag)
    found: dict[str, _Digest] = {}  # by its whole key
    layers = tuple(_layers(files, target, steps))
    for path, text, above in layers if any(_SET.search(text) for _, text, _ in layers) else ():
        found |= _in_text(path, text, steps, above)
    for one in parameters:
        *parents, key = parse_path(one.name)
        if path_text(parents) == path_text(steps[: len(parents)]) and len(parents) < len(steps):
            value = "" if one.value == "null" and not one.force_string else one.value  # `--set` removes it
            if _belongs(key.name, value, steps[len(parents) :], ()):
                found[path_text((*parents, key))] = _Digest(value, "", "the Application's parameters")
    for name, digest in found.items():
        if digest.value and name != keys.digest.replace("\\.", "."):
            hint = f"set {name} to an empty text"
            if not (keys.digest or keys.spec):
                hint = f"annotate {target.alias or '<alias>'}.helm.image-digest: {name}, which each update then writes"
            raise TargetError(
                f"{digest.where}: {name} is {digest.value[:80]!r}, so a chart that reads it ignores a new {tag}",
                hint=hint,
                subject=digest.path,
            )
    return next((digest.value for name, digest in found.items() if name == keys.digest.replace("\\.", ".")), "")


class _Digest(NamedTuple):
    value: str
    path: str  # "" if it is not in a file
    where: str  # its place in the file, or in the Application


def _layers(files: Files, target: Target, steps: Sequence[Segment]) -> Iterator[tuple[str, str, int]]:
    """Yield what Helm merges, in its order: the file ("" is `helm.values`), its text, and the steps that it lacks.

    The file of a chart in `charts/` lacks the first step, which is the chart's name.
    """
    paths = list(target.values)
    if target.kind == "helmvalues" and not {target.path, *target.fallbacks} & {*paths}:
        paths.append(chosen(files, target))
    for path in paths:
        try:
            text = text_of(files, path) or ""
        except TargetError:
            continue
        yield path, text, int(f"/{path}".endswith(f"/charts/{steps[0].name}/values.yaml"))
    yield "", target.source.values, 0


@lru_cache(maxsize=1024)  # a run reads a target several times
def _in_text(path: str, text: str, steps: tuple[Segment, ...], above: int) -> Mapping[str, _Digest]:
    """Return the digests of the tag at these steps in one text, by the whole key. `above` steps are not in the text."""
    found: dict[str, _Digest] = {}
    try:
        tree = parse(text)
        node = tree.documents[0].root if tree.documents else None
        for level in range(above, len(steps)):
            if node is None or node.kind != "mapping":
                break
            beside = entries(tree.documents[0], node)
            for name, one in beside.items():
                # some charts have a digest for each architecture
                scalars = [each for each in walk(one) if each.kind == "scalar" and not each.null]
                values = [each.value for each in scalars if one.kind == "scalar" or _DIGEST.fullmatch(each.value)]
                value = next(iter(values), "")
                if _belongs(name, value, steps[level:], beside):
                    where = f"line {tree.line(one)}" if path else "the Application's helm.values"
                    found[path_text((*steps[:level], Segment(name, (), name)))] = _Digest(value, path, where)
            below = item(tree.documents[0], beside.get(steps[level].name), steps[level].indices)
            node = resolved(tree.documents[0], below) if below is not None else None
    except TargetError:  # it is not YAML; for the file to write, `read` raises that error
        return {}
    return found


def _belongs(name: str, value: str, steps: Sequence[Segment], beside: Iterable[str]) -> bool:
    """Tell whether a key beside the first of these steps has the digest of the tag at the last one.

    Charts call it `digest` or `imageSha` beside `tag`, `webDigest` beside `webTag`, or `imageDigest` beside `image`.
    Any other key that has a digest counts, too, unless it is beside a tag of its own. An empty text hides a digest.
    """
    name, first = _plain(name), _plain(steps[0].name)
    stem, is_tag = _WORDS.sub("", name), len(steps) == 1
    if stem == name:
        return False
    if stem in {first, *({"", "image", first.removesuffix("tag")} if is_tag else ())}:
        return bool(not value or _NAMES.search(name) or _DIGEST.fullmatch(value))
    if not is_tag or (value and not _DIGEST.fullmatch(value)):
        return False
    return not {_plain(other) for other in beside} & {stem, f"{stem}tag"} - {first}


def _plain(name: str) -> str:
    return re.sub("[_-]", "", name).lower()
