"""Advice for values that belong in another key, such as a range in `allow-tags`
or a tag in `helm.image-tag`.

Each of these mistakes was reported in an Argo CD Image Updater (AIU) issue. Some of the issues are
cited by number.
"""

from __future__ import annotations

import re

from task.errors import Malformed
from task.image import live_image
from task.model import Entry
from task.policy.tag_filter import allow_pattern, regexp_of_glob, unwrapped
from task.policy.version_range import parse_range, parse_version

TAG_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
_WILD_PART = re.compile(r"(?:^|\.)[xX*](?:\.|$|-)")
_SHA = re.compile(r"(?:sha-?)?(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,40}")
_TOKENS = r"\.[*+]|\\[._-]|\[\^?[A-Za-z0-9_-]+\]|[A-Za-z0-9_.-]"
_TOKEN = re.compile(_TOKENS)
_SIMPLE = re.compile(rf"(?:{_TOKENS})+")
_AS_GLOB = {".*": "*", ".+": "?*"}  # a lone "." usually means a literal dot: ^0.28.*
_TAG_WORDS = ("tag", "version")
_NAME_WORDS = ("repository", "repo", "registry", "name")


def range_of(text: str) -> str:
    """Return the value as a version range, with spaces instead of commas, or "" if the value might
    mean something else.

    `1.2.3` and `*` are valid ranges too, but people use the first to mean a single tag, and the
    second to mean any tag.
    """
    word, colon, rest = text.partition(":")
    has_prefix = bool(colon) and word.strip().lower() == "semver"
    written = rest if has_prefix else text
    version_range = " ".join(written.replace(",", " ").split())
    if not has_prefix and not _has_range_syntax(version_range):
        return ""
    if not any(letter.isdigit() for letter in version_range):
        return ""
    try:
        parse_range(version_range)
    except Malformed:
        return ""
    return version_range


def _has_range_syntax(text: str) -> bool:
    """Return whether a text has an operator or a wildcard of version ranges: `>=1.2`, `1.x`."""
    if text.startswith(tuple("<>=!^~")):
        return True
    return "||" in text or " - " in text or bool(_WILD_PART.search(text))


def listed_as(entry: Entry, constraint: str) -> str:
    """Return the `image-list` entry with this constraint.

    The entry gets an alias if the constraint contains `=`.

    AIU reads everything before the first `=` as the alias: `nginx:>=1.0` is the image `1.0` with
    the alias `nginx:>`.
    """
    alias = entry.alias
    if not alias and "=" in constraint:
        alias = entry.image.name.rpartition("/")[2]
    text = f"{entry.image.name}:{constraint}" if constraint else entry.image.name
    return f"{alias}={text}" if alias else text


def key_of(entry: Entry, key: str) -> str:
    """Return the name of the entry's annotation for a per-image key."""
    return f"{entry.alias}.{key}" if entry.alias else key


def on_allow_tags(entry: Entry, key: str, value: str) -> str:
    """Return the advice for an `allow-tags` value that is a version range,
    or "" for any other value.
    """
    wanted = range_of(value)
    if not wanted:
        return ""
    if entry.constraint in ("", wanted):
        move = f"use {listed_as(entry, wanted)} in image-list and remove {key}"
    else:
        move = (
            f"remove {key}: image-list already has the constraint {entry.constraint!r}; to change"
            f" it, use {wanted!r}"
        )
    # `^1.2` is both a range and a regular expression
    if wanted.startswith("^") and not value.lower().startswith("semver"):
        return f"use regexp:{wanted} if you mean a tag prefix; for the range {wanted}, {move}"
    return move


def on_strategy(entry: Entry, key: str, value: str) -> str:
    """Return the advice for an unknown `update-strategy`, or ""."""
    word, colon, rest = (part.strip() for part in value.partition(":"))
    if wanted := range_of(value):
        return f"set {key}: semver, and use {listed_as(entry, wanted)} in image-list"
    if colon and rest and word.lower() == "digest":
        return f"set {key}: digest, and use {listed_as(entry, rest)} in image-list"
    if colon and word.lower().startswith("reg"):
        return f"set {key_of(entry, 'allow-tags')}: regexp:{rest}, and set the strategy separately"
    return ""


def on_constraint(entry: Entry) -> str:
    """Return the advice for a constraint that is a pattern or a tag to follow, or "" for any other
    constraint.
    """
    word, colon, rest = (part.strip() for part in entry.constraint.partition(":"))
    wanted = range_of(entry.constraint) if colon else ""
    if wanted:
        return f"use {listed_as(entry, wanted)}"
    if colon and word.lower().startswith("reg"):
        return (
            f"use {listed_as(entry, '')} in image-list, and set"
            f" {key_of(entry, 'allow-tags')}: regexp:{rest}"
        )
    if set(entry.constraint) <= TAG_LETTERS and not parse_version(entry.constraint):
        return (
            f"to follow the tag {entry.constraint!r}, set {key_of(entry, 'update-strategy')}:"
            " digest"
        )
    if regexp := regexp_of_glob(entry.constraint):
        return (
            f"use {listed_as(entry, '')} in image-list, and set"
            f" {key_of(entry, 'allow-tags')}: {regexp}"
        )
    return ""


def on_ignored_constraint(entry: Entry) -> str:
    """Return the advice for a constraint that the strategy ignores."""
    if wanted := range_of(entry.constraint):
        return (
            f"set {key_of(entry, 'update-strategy')}: semver to allow only {wanted}, or remove"
            f" {wanted!r}"
        )
    hint = on_constraint(entry)
    if hint.startswith("to follow"):
        return f"{hint}; to allow every tag, use {listed_as(entry, '')}"
    return hint or f"use {listed_as(entry, '')}, and choose tags with allow-tags: regexp:…"


def blind_pattern(text: str) -> str:
    """Return the pattern with its surrounding spaces, quotes, or slashes removed, or "" if it has
    none.

    Tags cannot contain these characters, so such a pattern never matches.
    """
    bare = unwrapped(text)
    if bare == text:
        return ""
    try:
        allow_pattern(f"regexp:{bare}")
    except Malformed:
        return ""
    return f"regexp:{bare}"


def blind_glob(glob: str) -> str:
    """Return the glob's first character that cannot be in a tag, or "" if there is none.

    A glob with such a character never matches.
    """
    without_sets = re.sub(r"\[(?:\\.|[^\]])*\]|\\", "", glob)  # `[a-z]`, and the `\` of an escape
    for letter in without_sets:
        if letter not in TAG_LETTERS and letter not in "*?":
            return letter
    return ""


def on_blind_glob(glob: str) -> str:
    """Return the advice for a glob that never matches.

    Most of these are regular expressions (AIU issue 1108).
    """
    meant = glob_of_regexp(glob)
    if meant:
        return f"ignore-tags accepts globs: use {meant}"
    words = glob.strip("{}").split()
    if len(words) > 1:
        return f"separate globs with commas: {', '.join(words)}"
    return (
        "ignore-tags accepts comma-separated globs (* ? [a-z]); for regular expressions, use"
        " allow-tags"
    )


def glob_of_regexp(text: str) -> str:
    """Return the glob that is equivalent to a simple regular expression, with or without `regexp:`,
    or "" if there is no such glob.
    """
    word, colon, rest = text.partition(":")
    has_prefix = bool(colon) and word.strip().lower().startswith("reg")
    regexp = rest.strip() if has_prefix else text
    inner = regexp.removeprefix("^").removesuffix("$")
    if not inner or not _SIMPLE.fullmatch(inner):
        return ""
    tokens = _TOKEN.findall(inner)
    glob = "".join(_AS_GLOB.get(token, token.removeprefix("\\")) for token in tokens)
    # A regular expression without anchors matches any part of a tag; a glob matches the whole tag.
    if not regexp.startswith("^"):
        glob = f"*{glob}"
    if not regexp.endswith("$"):
        glob = f"{glob}*"
    return re.sub(r"\*{2,}", "*", glob)


def is_image(value: str, entry: Entry) -> bool | None:
    """Return whether the value of a Helm key is an image.

    Returns True for the entry's own image or an image with a tag, False for a key, and None if the
    value could be either.
    """
    characters = set(value)
    if characters.isdisjoint("/:@"):  # a key
        return False
    if not characters.isdisjoint("\\[{"):  # a path in the values, or a template
        return False
    image = live_image(value)
    if image is None:
        return False
    is_own = image.identity == entry.image.identity or image.repository == entry.image.repository
    if is_own or image.tag or image.digest:
        return True
    return None


def is_tag(value: str) -> bool:
    """Return whether the value of a Helm key is a tag rather than a key.

    Examples of tags: `v1.2.3`, `latest`, a commit, `develop-v0.20.0-33` (AIU pull 663).
    """
    if not value or set(value) - TAG_LETTERS:
        return False
    if value == "latest" or parse_version(value) or _SHA.fullmatch(value):
        return True
    if _last(value).lower().endswith((*_TAG_WORDS, *_NAME_WORDS, "image")):
        return False  # a key
    _, *later_parts = value.split(".")
    return any(part.isdigit() for part in later_parts)


def is_tag_key(key: str) -> bool:
    """Return whether a Helm key's name suggests a tag."""
    return _last(key).lower().endswith(_TAG_WORDS)


def is_name_key(key: str) -> bool:
    """Return whether a Helm key's name suggests an image name."""
    return _last(key).lower().endswith(_NAME_WORDS)


def _last(key: str) -> str:
    return key.rpartition(".")[2]
