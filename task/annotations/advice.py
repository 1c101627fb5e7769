"""Advice for values that belong in another key, such as a range in `allow-tags`
or a tag in `helm.image-tag`.

Each of these mistakes was found in an Argo CD Image Updater (AIU) issue. Some issues are cited by
number.
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
    """Return the version range in an annotation's value, or "" if the value could mean something
    else.

    For example, `semver:>=1.2,<2` becomes `>=1.2 <2`. The value must contain a digit and, without
    `semver:`, also an operator or a wildcard. `1.2.3` and `*` are valid ranges too, but people use
    `1.2.3` to mean a single tag, and `*` to mean any tag.
    """
    keyword, colon, after_colon = text.partition(":")
    has_keyword = bool(colon) and keyword.strip().lower() == "semver"
    range_text = after_colon if has_keyword else text
    version_range = " ".join(range_text.replace(",", " ").split())

    is_range = has_keyword or _has_range_syntax(version_range)
    has_digit = any(letter.isdigit() for letter in version_range)
    if not is_range or not has_digit:
        return ""
    try:
        parse_range(version_range)
    except Malformed:
        return ""
    return version_range


def _has_range_syntax(text: str) -> bool:
    """Return whether the text has a version-range operator or wildcard, as in `>=1.2` or `1.x`."""
    if text.startswith(tuple("<>=!^~")):
        return True
    return "||" in text or " - " in text or bool(_WILD_PART.search(text))


def entry_with(entry: Entry, constraint: str) -> str:
    """Return the `image-list` entry as text, with this constraint instead of its own, such as
    `web=nginx:>=1.0`.
    """
    alias = entry.alias
    # If the constraint contains `=`, an entry without an alias needs one, because AIU parses
    # everything before the first `=` as the alias: it reads `nginx:>=1.0` as the image `1.0` with
    # the alias `nginx:>`.
    if not alias and "=" in constraint:
        alias = entry.image.name.rpartition("/")[2]
    text = f"{entry.image.name}:{constraint}" if constraint else entry.image.name
    return f"{alias}={text}" if alias else text


def key_of(entry: Entry, key: str) -> str:
    """Return the annotation name for an entry's per-image key, such as `web.allow-tags`."""
    return f"{entry.alias}.{key}" if entry.alias else key


def on_allow_tags(entry: Entry, key: str, value: str) -> str:
    """Return advice for an `allow-tags` value that is a version range, or "" for any other value.

    Version ranges belong in `image-list`.
    """
    version_range = range_of(value)
    if not version_range:
        return ""
    if entry.constraint in ("", version_range):
        fix = f"use {entry_with(entry, version_range)} in image-list and remove {key}"
    else:
        fix = (
            f"remove {key}: image-list already has the constraint {entry.constraint!r}; to change"
            f" it, use {version_range!r}"
        )
    # `^1.2` is both a range and a regular expression
    may_be_regexp = version_range.startswith("^") and not value.lower().startswith("semver")
    if may_be_regexp:
        return (
            f"use regexp:{version_range} if you mean a tag prefix; for the range {version_range},"
            f" {fix}"
        )
    return fix


def on_strategy(entry: Entry, key: str, value: str) -> str:
    """Return advice for an unknown `update-strategy`, or "" if there is none.

    There is advice for version ranges, and for values such as `digest:<tag>` and `regexp:<RE2>`.
    """
    version_range = range_of(value)
    if version_range:
        return f"set {key}: semver, and use {entry_with(entry, version_range)} in image-list"
    word, colon, after_colon = (part.strip() for part in value.partition(":"))
    if not colon:
        return ""
    if word.lower() == "digest" and after_colon:
        return f"set {key}: digest, and use {entry_with(entry, after_colon)} in image-list"
    if word.lower().startswith("reg"):
        return (
            f"set {key_of(entry, 'allow-tags')}: regexp:{after_colon}, and set the strategy"
            " separately"
        )
    return ""


def on_constraint(entry: Entry) -> str:
    """Return advice for an invalid constraint in `image-list`, or "" if there is none.

    There is advice for a range after `semver:`, for a pattern, and for a tag to follow, such as
    `latest`.
    """
    constraint = entry.constraint
    word, colon, after_colon = (part.strip() for part in constraint.partition(":"))
    # `semver:1.x` is invalid only because of the keyword. If a range without it is invalid, the
    # mistake is a different one.
    version_range = range_of(constraint) if colon else ""
    if version_range:
        return f"use {entry_with(entry, version_range)}"

    move_to_allow_tags = (
        f"use {entry_with(entry, '')} in image-list, and set {key_of(entry, 'allow-tags')}: "
    )
    if colon and word.lower().startswith("reg"):
        return f"{move_to_allow_tags}regexp:{after_colon}"

    is_tag_to_follow = set(constraint) <= TAG_LETTERS and not parse_version(constraint)
    if is_tag_to_follow:
        return f"to follow the tag {constraint!r}, set {key_of(entry, 'update-strategy')}: digest"

    regexp = regexp_of_glob(constraint)
    if regexp:
        return f"{move_to_allow_tags}{regexp}"
    return ""


def on_ignored_constraint(entry: Entry) -> str:
    """Return advice for a constraint that the strategy ignores."""
    version_range = range_of(entry.constraint)
    if version_range:
        return (
            f"set {key_of(entry, 'update-strategy')}: semver to allow only {version_range}, or"
            f" remove {version_range!r}"
        )
    hint = on_constraint(entry)
    without_constraint = entry_with(entry, "")
    if hint.startswith("to follow"):
        return f"{hint}; to allow every tag, use {without_constraint}"
    return hint or f"use {without_constraint}, and choose tags with allow-tags: regexp:…"


def unwrapped_pattern(pattern: str) -> str:
    """Return an `allow-tags` value for a regular expression, with the spaces, quotes, or slashes
    around it removed: `regexp:^v1` for `/^v1/`.

    `pattern` is the regular expression without the `regexp:` prefix. Returns "" if it has no such
    characters around it, or if it is invalid without them. Tags cannot contain these characters, so
    a pattern that includes them never matches.
    """
    inner_pattern = unwrapped(pattern)
    if inner_pattern == pattern:
        return ""
    try:
        allow_pattern(f"regexp:{inner_pattern}")
    except Malformed:
        return ""
    return f"regexp:{inner_pattern}"


def impossible_character(glob: str) -> str:
    """Return the first character in the glob that cannot occur in a tag, or "" if there is none.

    A glob that contains such a character never matches.
    """
    without_sets = re.sub(r"\[(?:\\.|[^\]])*\]|\\", "", glob)  # `[a-z]`, and the `\` of an escape
    for letter in without_sets:
        if letter not in TAG_LETTERS and letter not in "*?":
            return letter
    return ""


def on_impossible_glob(glob: str) -> str:
    """Return advice for an `ignore-tags` glob that never matches a tag.

    Most of these globs are actually regular expressions (AIU issue 1108) or several globs separated
    by spaces.
    """
    equivalent_glob = glob_of_regexp(glob)
    if equivalent_glob:
        return f"ignore-tags accepts globs: use {equivalent_glob}"
    words = glob.strip("{}").split()
    if len(words) > 1:
        return f"separate globs with commas: {', '.join(words)}"
    return (
        "ignore-tags accepts comma-separated globs (* ? [a-z]); for regular expressions, use"
        " allow-tags"
    )


def glob_of_regexp(text: str) -> str:
    """Return the glob that is equivalent to a simple regular expression: `v1*` for `regexp:^v1.*$`.

    Returns "" if there is no such glob. The `regexp:` prefix is optional.
    """
    keyword, colon, after_colon = text.partition(":")
    has_keyword = bool(colon) and keyword.strip().lower().startswith("reg")
    regexp = after_colon.strip() if has_keyword else text
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
    """Return whether a Helm annotation's value is an image rather than a Helm parameter name.

    Returns True for the entry's own image, and for an image with a tag or digest, such as
    `nginx:1.25`. Returns None if the value could be either, such as `acme/web`. Returns False
    otherwise, such as for `image.tag`.
    """
    has_image_characters = any(character in value for character in "/:@")
    # such as `images[0].tag`, or a template
    has_name_characters = any(character in value for character in "\\[{")
    if has_name_characters or not has_image_characters:
        return False
    image = live_image(value)
    if image is None:
        return False

    own = entry.image
    is_own_image = image.identity == own.identity or image.repository == own.repository
    has_version = bool(image.tag or image.digest)
    if is_own_image or has_version:
        return True
    return None


def is_tag(value: str) -> bool:
    """Return whether a Helm annotation's value is a tag rather than a Helm parameter name.

    Examples of tags: `v1.2.3`, `latest`, a commit ID, `develop-v0.20.0-33` (AIU pull request 663).
    """
    if not value or not set(value) <= TAG_LETTERS:
        return False
    if value == "latest" or parse_version(value) or _SHA.fullmatch(value):
        return True
    is_parameter_name = _last_part(value).endswith((*_TAG_WORDS, *_NAME_WORDS, "image"))
    if is_parameter_name:
        return False
    _, *later_parts = value.split(".")  # `20` and `0-33` in `develop-v0.20.0-33`
    return any(part.isdigit() for part in later_parts)


def is_tag_key(parameter: str) -> bool:
    """Return whether a Helm parameter's name suggests that its value is a tag."""
    return _last_part(parameter).endswith(_TAG_WORDS)


def is_name_key(parameter: str) -> bool:
    """Return whether a Helm parameter's name suggests that its value is an image name."""
    return _last_part(parameter).endswith(_NAME_WORDS)


def _last_part(parameter: str) -> str:
    """Return the last part of a dotted name, in lowercase."""
    return parameter.rpartition(".")[2].lower()
