"""Image references and the entries of `image-list`: text in, `Image` and `Entry` out.

Names follow Docker's rules (contract, section 3): the first part is a registry when it
holds a dot or a colon or is `localhost`; only Docker Hub implies `library/`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from task.errors import Malformed
from task.model import Entry, Image

_HUB = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"})
_HOST = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
_REGISTRY = re.compile(rf"(?:{_HOST}|\[[0-9a-f:.]+\])(?::[0-9]+)?", re.ASCII | re.IGNORECASE)
# What can only be a host: a port before a slash is never a tag.
_HOST_AND_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.]+\](?::[0-9]+)?|[^/:@\s\[\]]+:[0-9]+)(?=/)", re.ASCII)
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}", re.ASCII)
_DIGEST_LIKE = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*:[A-Za-z0-9+/=_-]+", re.ASCII)
_IMAGE_ID = re.compile(r"(?:sha256:)?[0-9a-f]{64}", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)
_BLANK = re.compile(r"[\s\x00-\x20\x7f-\xa0]")
_DIGITS = 64  # of a sha256
_LONGEST_REPOSITORY = 255
_LONGEST_QUOTE = 200


def parse_image(text: str) -> Image:
    """The image of one reference, `[registry[:port]/]path[:tag][@digest]`; tag and digest may be missing.

    Raises `Malformed`, saying what is wrong with which part, for anything a registry would not take.
    """
    _refuse_what_is_no_reference(text)
    name, tag, digest = _split(text)
    image = _image(name, text)
    if tag is not None and not _TAG.fullmatch(tag):
        raise _bad_tag(tag, text)
    if digest is not None and not _DIGEST.fullmatch(digest):
        raise Malformed(
            f"{_quote(text)}: {_quote(digest)} is not a digest",
            "a digest is sha256: and 64 digits 0-9a-f, as the registry or the builder prints it",
        )
    return replace(image, tag=tag or "", digest=digest or "")


def parse_images(values: Sequence[str]) -> tuple[Image, ...]:
    """The images that `--image` names, in order, each once (contract, section 2).

    Each value holds references separated by commas, blanks or newlines, or is a JSON list of strings.
    Raises `Malformed` for the first that cannot be read; no reference at all is an empty answer.
    """
    texts = [text for value in values for text in _references(value.strip())]
    return tuple(dict.fromkeys(parse_image(text) for text in texts))


def same_image(one: Image, other: Image) -> bool:
    """Whether both name the same repository, whatever the spelling; tags and digests do not count."""
    return one.identity == other.identity


@lru_cache(maxsize=65536)
def live_image(text: str) -> Image | None:
    """The image of a `status.summary.images` string or of a Kustomize image (`name=image:tag`).

    Lenient, as others wrote it: upper case and shortened digests pass. None where no name can be read.
    """
    text = text.strip()
    name, tag, digest = _split(text.partition("=")[2] if "=" in text else text)
    try:
        image = _image(name, text, any_case=True)
    except Malformed:
        return None
    if set(tag or "") & {"/", ":"} or _blank(tag or "") or _blank(digest or ""):
        return None
    return replace(image, tag=tag or "", digest=digest or "")


def split_image_list(text: str) -> tuple[str, ...]:
    """The entries of an `image-list`, trimmed, without the empty ones; as many as `parse_image_list` answers."""
    return tuple(entry for part in text.split(",") if (entry := part.strip()))


def parse_image_list(text: str) -> tuple[Entry | Malformed, ...]:
    """Every entry of an `image-list`, or what is wrong with it, in order. Never raises."""
    return tuple(_entry_or_problem(entry) for entry in split_image_list(text))


def parse_entry(text: str) -> Entry:
    """One entry of `image-list`, `[alias=]name[:constraint][@digest]`.

    The constraint is trimmed and not judged here: what it must be depends on the strategy.
    Raises `Malformed` where no image can be read, with the fix in the hint.
    """
    text = text.strip()
    alias, reference = _split_alias(text)
    _refuse_scheme(reference, text)
    name, constraint, digest = _split(reference)
    image = _image(name.strip(), text, any_case=True)
    if "/" in (constraint or ""):
        raise _bad_tag(constraint or "", text)
    if digest is not None and not _DIGEST_LIKE.fullmatch(digest.strip()):
        raise Malformed(f"{_quote(text)}: {_quote(digest)} is not a digest", "a digest is written sha256:…")
    return Entry(alias, replace(image, digest=(digest or "").strip()), (constraint or "").strip(), text)


def _entry_or_problem(text: str) -> Entry | Malformed:
    try:
        return parse_entry(text)
    except Malformed as problem:
        return problem


def _references(value: str) -> list[str]:
    """The references in one value of `--image`."""
    if value.startswith("[") and not _HOST_AND_PORT.match(value):
        return [stripped for item in _json_strings(value) if (stripped := item.strip())]
    return value.replace(",", " ").split()


def _json_strings(value: str) -> list[str]:
    try:
        items = json.loads(value)
    except (ValueError, RecursionError) as problem:
        raise Malformed(f"{_quote(value)} is not a JSON list: {problem}", 'write ["image:tag", …]') from problem
    for item in items:
        if not isinstance(item, str):
            raise Malformed(f"{_quote(value)}: the list holds something else than strings", 'write ["image:tag", …]')
    return list(items)


def _split_alias(text: str) -> tuple[str, str]:
    """What stands before and behind the first `=`, as Argo CD Image Updater splits."""
    if "=" not in text:
        return "", text
    alias, _, reference = text.partition("=")
    if _split(alias)[1] is not None:  # a constraint was cut: a colon behind a host's port is never part of an alias
        name, _, _ = _split(text)
        short = name.rpartition("/")[2].strip()
        raise Malformed(
            f"{_quote(text)}: without an alias, the '=' of the constraint is taken for the end of the alias",
            f"write {short}={text}",
        )
    return alias.strip(), reference.strip()


def _split(text: str) -> tuple[str, str | None, str | None]:
    """Name, tag (or constraint) and digest as they stand there; None: there is no `:` or no `@`."""
    front, at, digest = text.partition("@")
    first, slash, _ = front.partition("/")
    host = _HOST_AND_PORT.match(front) if slash and set(first) & {":", "["} else None
    start = host.end() if host else 0
    path, colon, tag = front[start:].partition(":")
    return front[:start] + path, tag if colon else None, digest if at else None


def _image(name: str, text: str, *, any_case: bool = False) -> Image:
    """The image of a bare name; `any_case` lets upper case pass."""
    if not name:
        raise Malformed(f"{_quote(text)} names no image", "write [registry/]name:tag")
    registry, repository = _registry_and_repository(name)
    if not _is_registry(registry):
        raise Malformed(f"{_quote(text)}: {_quote(registry)} is not the host of a registry", "write host[:port]/name")
    for piece in repository.split("/"):
        if not _PART.fullmatch(piece.lower() if any_case and piece.isascii() else piece):
            raise _bad_part(piece, name, text)
    if len(repository) > _LONGEST_REPOSITORY:
        raise Malformed(f"{_quote(text)}: the name is longer than {_LONGEST_REPOSITORY} letters", "shorten the name")
    return Image(name, registry, repository)


def _is_registry(host: str) -> bool:
    """A name is told without the pattern, whose compilation takes as long as all else here."""
    labels = host.split(".") if host.isascii() else ()
    named = labels and all(label.replace("-", "").isalnum() and label.strip("-") == label for label in labels)
    return bool(named or _REGISTRY.fullmatch(host))


def _registry_and_repository(name: str) -> tuple[str, str]:
    """Registry and repository in normal form. Host names know no case; repositories do."""
    first, slash, rest = name.partition("/")
    host = first.lower()
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, rest = "docker.io", name
    if host not in _HUB:
        return host, rest
    return "docker.io", rest if "/" in rest else f"library/{rest}"


def _refuse_what_is_no_reference(text: str) -> None:
    if not text:
        raise Malformed("the image reference is empty", "write [registry/]name:tag")
    if blank := _blank(text):
        raise Malformed(
            f"{_quote(text)}: an image reference holds no blank or control character ({blank.group()!r})",
            "remove it; several references are separated by commas",
        )
    _refuse_scheme(text, text)
    if len(text) >= _DIGITS and _IMAGE_ID.fullmatch(text):
        raise Malformed(f"{_quote(text)} is an image id or a digest without a name", "write name:tag or name@sha256:…")


def _blank(text: str) -> re.Match[str] | None:
    """The first blank or control character."""
    return None if text.isprintable() and " " not in text else _BLANK.search(text)


def _refuse_scheme(reference: str, text: str) -> None:
    if "://" in reference and (scheme := _SCHEME.match(reference)):
        raise Malformed(
            f"{_quote(text)}: an image reference has no {scheme.group()!r}",
            f"write {_cut(re.sub('^[^/]*@', '', reference[scheme.end() :]))}",
        )


def _bad_tag(tag: str, text: str) -> Malformed:
    if not tag:
        return Malformed(
            f"{_quote(text)}: nothing follows the colon", "write the tag behind it, or leave out the colon"
        )
    if "/" in tag:
        return Malformed(f"{_quote(text)}: {_quote(tag)} is neither a port nor a tag", "write host:port/name:tag")
    return Malformed(
        f"{_quote(text)}: {_quote(tag)} is not a tag",
        "a tag has up to 128 letters, digits, '_', '.' and '-', and begins with none of the last two",
    )


def _bad_part(piece: str, name: str, text: str) -> Malformed:
    if not piece:
        return Malformed(f"{_quote(text)}: a part of the name {_quote(name)} is empty", "check the slashes")
    if _PART.fullmatch(piece.lower()):
        return Malformed(f"{_quote(text)}: {_quote(piece)} has upper-case letters", f"write {_cut(piece.lower())}")
    return Malformed(
        f"{_quote(text)}: {_quote(piece)} cannot be part of an image's name",
        "a part has letters and digits, with single '.', '_', '__' or '-' between them; a colon stands before the tag, "
        "a comma between two images",
    )


def _quote(text: str) -> str:
    return repr(_cut(text))


def _cut(text: str) -> str:
    """Long texts say enough by their beginning."""
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"
