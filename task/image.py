"""Parses image references and `image-list` entries into `Image` and `Entry`.

Names follow Docker's rules: the first part is a registry if it contains a dot or a colon, or is
`localhost`. Only Docker Hub implies `library/`. AIU up to v1.3 drops it from every name, which
turns `ghcr.io/library/nginx` into a different repository.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from task.errors import Malformed
from task.model import Entry, Image
from task.plain_data import parsed_json
from task.text import shortened
from task.urls import without_login

_HUB = frozenset(
    {"docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"}
)
_HOST = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
_REGISTRY = re.compile(rf"(?:{_HOST}|\[[0-9a-f:.]+\])(?::[0-9]+)?", re.ASCII | re.IGNORECASE)
# A port before a slash is never a tag. AIU, in contrast,
# parses `localhost:5000/foo:^1.0` as the image `localhost`.
_HOST_AND_PORT = re.compile(
    r"(?:\[[0-9A-Fa-f:.]+\](?::[0-9]+)?|[^/:@\s\[\]]+:[0-9]+)(?=/)",
    re.ASCII,
)
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}", re.ASCII)
_DIGEST_LIKE = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*:[A-Za-z0-9+/=_-]+", re.ASCII)
# as printed by `docker images --no-trunc`
_IMAGE_ID = re.compile(r"(?:sha256:)?[0-9a-f]{64}", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)
_BLANK = re.compile(r"[\s\x00-\x20\x7f-\xa0]")
_LONGEST_REPOSITORY = 255
# a range that starts with an operator
RANGE = re.compile(r"(?:[<>!]=?|=[<>]?|~>?|\^)\s*v?(?:[0-9*]|[xX]\b).*")
_REST = re.compile(r"[<>=!~^*].*|v?[0-9.xX*]+")  # the rest of a range, after a comma


def parse_image(text: str) -> Image:
    """Parse a reference, `[registry[:port]/]path[:tag][@digest]`.

    A missing tag or digest is "".

    Raises `Malformed` for a reference that a registry would reject. The error names the invalid
    part.
    """
    if not text:
        raise Malformed("the image reference is empty", "use [registry/]name:tag")
    blank = _BLANK.search(text)
    if blank:
        raise _malformed_reference(
            text,
            f": an image reference cannot contain spaces or control characters ({blank.group()!r})",
            "remove it; separate several references with commas",
        )
    _refuse_scheme(text, text)
    if _IMAGE_ID.fullmatch(text):
        raise _malformed_reference(
            text,
            " is an image ID or a digest without a name",
            "use name:tag or name@sha256:…",
        )

    name, tag, digest = _split_reference(text)
    image = _image(name, text)
    if tag is not None and not _TAG.fullmatch(tag):
        raise _bad_tag(tag, text)
    if digest is not None and not _DIGEST.fullmatch(digest):
        raise _malformed_reference(
            text,
            f": {shortened(digest)!r} is not a digest",
            (
                "use sha256: followed by 64 hex digits (0-9a-f), as printed by the registry or the"
                " builder"
            ),
        )
    return replace(image, tag=tag or "", digest=digest or "")


def parse_images(values: Sequence[str]) -> tuple[Image, ...]:
    """Return the images in `--image`, in order and without duplicates. The result may be ().

    Each value is a list of references separated by commas, spaces, or newlines, or a JSON list of
    strings. Raises `Malformed` for the first reference that cannot be parsed.
    """
    references: list[str] = []
    for value in values:
        text = value.strip()
        # `[::1]:5000/app` is not a JSON list
        is_json = text.startswith("[") and not _HOST_AND_PORT.match(text)
        if is_json:
            references += _references_in_json(text)
        else:
            references += text.replace(",", " ").split()
    return tuple(dict.fromkeys(map(parse_image, references)))


def _references_in_json(text: str) -> list[str]:
    """Return the strings in a JSON list, trimmed, without empty strings. Raises `Malformed` for any
    other text.
    """
    try:
        items = parsed_json(text)
    except ValueError as problem:
        raise _malformed_reference(
            text,
            f" is not a JSON list: {problem}",
            'use ["image:tag", …]',
        ) from problem
    if not all(isinstance(item, str) for item in items):
        raise _malformed_reference(
            text,
            ": not every item in the list is a string",
            'use ["image:tag", …]',
        )
    return list(filter(None, map(str.strip, items)))


@lru_cache(maxsize=65536)
def live_image(text: str) -> Image | None:
    """Return the image in a `status.summary.images` string or a Kustomize image (`name=image:tag`).

    Uppercase letters and shortened digests are allowed, because the string comes from a cluster or
    a file. Returns None if the name, the tag, or the digest cannot be valid.
    """
    text = text.strip()
    reference = text.partition("=")[2] if "=" in text else text
    name, tag, digest = _split_reference(reference)
    tag = tag or ""
    digest = digest or ""
    try:
        image = _image(name, text, any_case=True)
    except Malformed:
        return None
    has_blank = bool(_BLANK.search(tag) or _BLANK.search(digest))
    if "/" in tag or ":" in tag or has_blank:
        return None
    return replace(image, tag=tag, digest=digest)


def split_registry(name: str) -> tuple[str, str]:
    """Split a name into the registry as written (or "") and the repository, following Docker's
    rule.
    """
    first_part, slash, other_parts = name.partition("/")
    is_registry = "." in first_part or ":" in first_part or first_part.lower() == "localhost"
    if slash and is_registry:
        return first_part, other_parts
    return "", name


def split_image_list(text: str) -> tuple[str, ...]:
    """Return the trimmed entries of an `image-list`, without empty ones. There is one for each
    result of `parse_image_list`.
    """
    entries = map(str.strip, text.split(","))
    return tuple(entry for entry in entries if entry)


def parse_image_list(text: str) -> tuple[Entry | Malformed, ...]:
    """Return each entry of an `image-list`, or the error in it, in order. Never raises."""
    entries: list[Entry | Malformed] = []
    for entry in split_image_list(text):
        try:
            entries.append(parse_entry(entry))
        except Malformed as problem:
            entries.append(problem)
    return tuple(entries)


def cut_ranges(text: str) -> dict[int, int]:
    """Return the parts of an `image-list` that are not entries themselves, but belong to a version
    range that contains a comma. Each part is mapped to its entry.

    Parts and entries are both given as indices into `split_image_list`: `web=acme/web:>=1.0,<2`
    results in `{1: 0}`. Otherwise, `<2` would be read as an image, and the entry would accept
    2.5.0.
    """
    owners: dict[int, int] = {}
    entries = parse_image_list(text)
    for number, piece in enumerate(split_image_list(text)):
        if number == 0:
            continue
        # The range belongs to the entry before this piece. If that piece is itself the rest of a
        # range, it belongs to the entry of that range.
        owner = owners.get(number - 1, number - 1)
        entry = entries[owner]
        # After a constraint, even `1.0` continues the range.
        # Elsewhere, only an operator indicates a range.
        has_constraint = isinstance(entry, Entry) and entry.constraint
        pattern = _REST if has_constraint else RANGE
        if pattern.fullmatch(piece):
            owners[number] = owner
    return owners


def parse_entry(text: str) -> Entry:
    """Parse an `image-list` entry, `[alias=]name[:constraint][@digest]`.

    The constraint is trimmed but not checked, because its grammar depends on the strategy. Raises
    `Malformed`, with the fix in its hint, if the entry does not have a valid image.
    """
    text = text.strip()
    alias, reference = _split_alias(text)
    _refuse_scheme(reference, text)
    name, constraint, digest = _split_reference(reference)
    image = _image(name.strip(), text, any_case=True)
    constraint = constraint or ""
    if "/" in constraint:
        raise _bad_tag(constraint, text)
    if digest is not None and not _DIGEST_LIKE.fullmatch(digest.strip()):
        raise _malformed_reference(
            text,
            f": {shortened(digest)!r} is not a digest",
            "use sha256:…",
        )
    digest = (digest or "").strip()
    return Entry(alias, replace(image, digest=digest), constraint.strip(), text)


def _split_alias(text: str) -> tuple[str, str]:
    """Split an `image-list` entry, `alias=reference`, into the alias (or "") and the reference.
    Raises `Malformed` if the `=` is part of a version range.
    """
    if "=" not in text:
        return "", text
    alias, _, reference = text.partition("=")  # AIU also splits at the first `=`
    # The `=` in `nginx:>=1.0` is part of the constraint. An
    # alias contains no colon, except before the port of a host.
    _, after_colon, _ = _split_reference(alias)
    if after_colon is not None:
        name, _, _ = _split_reference(text)
        suggested_alias = name.rpartition("/")[2].strip()
        raise _malformed_reference(
            text,
            ": without an alias, the constraint's '=' is read as the end of an alias",
            f"use {suggested_alias}={text}",
        )
    return alias.strip(), reference.strip()


def _split_reference(text: str) -> tuple[str, str | None, str | None]:
    """Split `name:tag@digest` into its parts, as written. The tag may be a constraint.

    The tag is None if there is no `:`, and the digest is None if there is no `@`. The colon in
    `localhost:5000/web` does not start a tag.
    """
    before_digest, at_sign, digest = text.partition("@")

    # The colon before a port is part of the name.
    first_part, slash, _ = before_digest.partition("/")
    host = None
    if slash and (":" in first_part or "[" in first_part):
        host = _HOST_AND_PORT.match(before_digest)
    host_end = host.end() if host else 0

    after_host = before_digest[host_end:]
    path, colon, tag = after_host.partition(":")
    name = before_digest[:host_end] + path
    return (
        name,
        tag if colon else None,
        digest if at_sign else None,
    )


def _image(name: str, text: str, *, any_case: bool = False) -> Image:
    """Return the image with this name. The name does not include a tag or digest:
    `ghcr.io/acme/web`.

    `any_case` allows uppercase letters. Raises `Malformed`, which quotes the whole `text`, if the
    name is invalid.
    """
    if not name:
        raise _malformed_reference(text, " has no image name", "use [registry/]name:tag")
    registry, repository = split_registry(name)
    # repositories are case-sensitive, but host names are not
    registry = registry.lower() or "docker.io"
    if registry in _HUB:
        registry = "docker.io"
        repository = repository if "/" in repository else f"library/{repository}"
    elif not _REGISTRY.fullmatch(registry):
        raise _malformed_reference(
            text,
            f": {shortened(registry)!r} is not a registry host",
            "use host[:port]/name",
        )

    for piece in repository.split("/"):
        ignores_case = any_case and piece.isascii()
        checked_piece = piece.lower() if ignores_case else piece
        if not _PART.fullmatch(checked_piece):
            raise _bad_piece(piece, name, text)
    if len(repository) > _LONGEST_REPOSITORY:
        raise _malformed_reference(
            text,
            f": the name is longer than {_LONGEST_REPOSITORY} characters",
            "shorten the name",
        )
    return Image(name, registry, repository)


def _bad_piece(piece: str, name: str, text: str) -> Malformed:
    """Return the error for an invalid part of an image's name. `text` is what the user wrote."""
    if not piece:
        return _malformed_reference(
            text,
            f": the name {shortened(name)!r} has an empty part",
            "check the slashes",
        )
    if _PART.fullmatch(piece.lower()):
        return _malformed_reference(
            text,
            f": {shortened(piece)!r} has uppercase letters",
            f"use {shortened(piece.lower())}",
        )
    hint = "use letters and digits, separated by '.', '_', '__', or any number of '-'; "
    hint += "put a colon before the tag, and a comma between images"
    return _malformed_reference(
        text,
        f": {shortened(piece)!r} cannot be part of an image's name",
        hint,
    )


def _refuse_scheme(reference: str, text: str) -> None:
    """Raise `Malformed`, which quotes the whole `text`, if the reference is a URL."""
    scheme = _SCHEME.match(reference)
    if scheme is None:
        return
    why = f": an image reference cannot begin with {scheme.group()!r}"
    after_scheme = without_login(f"https://{reference[scheme.end() :]}").removeprefix("https://")
    raise _malformed_reference(text, why, f"use {shortened(after_scheme)}")


def _bad_tag(tag: str, text: str) -> Malformed:
    """Return the error for an invalid tag in `text`."""
    if not tag:
        return _malformed_reference(
            text,
            ": nothing follows the colon",
            "add the tag after it, or remove the colon",
        )
    if "/" in tag:
        return _malformed_reference(
            text,
            f": {shortened(tag)!r} is neither a port nor a tag",
            "use host:port/name:tag",
        )
    return _malformed_reference(
        text,
        f": {shortened(tag)!r} is not a tag",
        "use up to 128 letters, digits, '_', '.', and '-', and do not begin with '.' or '-'",
    )


def _malformed_reference(text: str, why: str, hint: str) -> Malformed:
    """Return an error that quotes the text and states the reason."""
    return Malformed(f"{shortened(text)!r}{why}", hint)
