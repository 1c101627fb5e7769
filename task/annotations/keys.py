"""The annotation keys: their valid values, which spelling or level takes precedence, and which keys
have no effect.

For a key that has no effect, a `Doubt` explains what was probably meant, and which key to use
instead. A misspelled rule never lets a tag through, so what counts as a misspelling is defined
exactly. A *near miss* equals a known key once it is converted to lowercase and `_` and `.` are
replaced with `-`, or it differs from a known key in at most two characters or in word order. Keys
from older versions and forks are not near misses: `FORMER` has advice for each.

docs/annotations.md documents each key. Comments about Argo CD Image Updater (AIU) refer to v0.18
(v0), the last version that reads annotations by default, and v1.3 (v1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from task.errors import Malformed, Trouble, Troubled
from task.image import cut_ranges, parse_image_list, split_image_list, split_registry
from task.model import Entry, Strategy
from task.text import nearest, normal_spelling, shortened

# renamed in AIU v0.13
DEPRECATED: Mapping[str, Strategy] = {
    "latest": "newest-build",
    "name": "alphabetical",
}

APPLICATION_KEYS = (
    "image-list", "write-back-method", "write-back-target", "git-branch", "git-repository", "write-back-source",
    "pull-request",
)  # fmt: skip
IMAGE_KEYS = (
    "update-strategy", "allow-tags", "ignore-tags", "tag-order", "tag-match", "force-update", "pull-secret",
    "platforms", "pin-digest",
    "helm.image-name", "helm.image-tag", "helm.image-spec", "helm.image-digest",
    "kustomize.image-name", "plugin.image-name", "plugin.image-tag", "plugin.image-spec", "manifests.image-name",
)  # fmt: skip
# AIU ignores these keys. An Application configured by an ImageUpdater resource keeps them, because
# a resource cannot set them.
OURS = (
    "write-back-source",
    "pull-request",
    "pin-digest",
    "tag-order",
    "manifests.image-name",
    "helm.image-digest",
)


@dataclass(frozen=True)
class Setting:
    """An annotation's value, and its key without the prefix. Both are "" if no annotation sets the
    key.
    """

    key: str = ""
    value: str = ""

    def __bool__(self) -> bool:
        return bool(self.key)

    def wrong(self, message: str, hint: str) -> Faulty:
        """Return an error about the setting's value."""
        return Faulty(self.key, self.value, message, hint)


class Faulty(Malformed):
    """An annotation has an unusable value. The error message includes the key and the value."""

    def __init__(self, key: str, value: str, message: str, hint: str) -> None:
        super().__init__(f"{key}: {message}", hint)
        self.key = key
        self.value = value


def prefixes(entry: Entry, aliases: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the prefixes of an `image-list` entry's own keys: `web` in `web.allow-tags`.

    If several prefixes have a value, the first one wins. Examples:

    - `acme/web=ghcr.io/acme/web`: `acme_web`, `acme/web`
    - `ghcr.io/acme/web`: `ghcr.io_acme_web`, `acme_web`, `web`

    An entry without an alias does not get a prefix that is another entry's alias (`aliases`).
    """
    if entry.alias:
        alias_in_v0 = entry.alias.replace("/", "_")
        alias_in_v1 = entry.alias
        return tuple(dict.fromkeys((alias_in_v0, alias_in_v1)))
    # AIU does not read per-image keys for an entry without an alias, but people expect it to.
    image_name = entry.image.name
    _, path = split_registry(image_name)
    names = (
        image_name.replace("/", "_"),
        path.replace("/", "_"),
        path.rpartition("/")[2],
    )
    return tuple(name for name in dict.fromkeys(names) if name not in aliases)


@dataclass(frozen=True)
class ImageList:
    """A parsed `image-list`, and the prefixes of its images' keys."""

    entries: tuple[Entry, ...]
    # the text and the error of each entry that cannot be parsed
    unreadable: tuple[tuple[str, Malformed], ...]
    unreadable_aliases: tuple[str, ...]
    # entry's text → the parts that commas cut off its version range: {"web=nginx:>=1": ["<2"]}
    cut_parts: Mapping[str, list[str]]
    aliases: frozenset[str]  # the prefixes of all entries with an alias
    without_alias: Mapping[str, Entry]  # the entries without an alias, by prefix
    names: frozenset[str]  # all prefixes, including the aliases of unreadable entries

    @property
    def shown(self) -> tuple[str, ...]:
        """The prefix that hints show for each entry: its alias, with `_` for `/`, or else its
        shortest prefix.
        """
        aliases_as_prefixes = [prefixes(entry)[0] for entry in self.entries if entry.alias]
        shortest_prefixes = []
        for entry in self.entries:
            own_prefixes = self.prefixes(entry)
            if own_prefixes and not entry.alias:
                shortest_prefixes.append(own_prefixes[-1])
        all_shown = (*aliases_as_prefixes, *self.unreadable_aliases, *shortest_prefixes)
        return tuple(dict.fromkeys(all_shown))

    def prefixes(self, entry: Entry) -> tuple[str, ...]:
        """Return the prefixes under which an entry's per-image keys are looked up.

        The first prefix with a value wins.
        """
        return prefixes(entry, self.aliases)


@lru_cache(maxsize=4096)
def read_image_list(text: str) -> ImageList:
    """Parse an `image-list`, such as `web=nginx:1.x, ghcr.io/acme/api`.

    Entries that cannot be parsed are listed in `unreadable`, and their aliases still count as
    prefixes.
    """
    texts = split_image_list(text)
    # A comma in a version range splits an entry: `<2` in `web=nginx:>=1,<2` is not a separate
    # entry. Each part that was cut off is mapped to the entry that it belongs to. Both are indices
    # in `texts`.
    entry_of_cut_part = cut_ranges(text)
    cut_parts: dict[str, list[str]] = {}
    for part_index, entry_index in entry_of_cut_part.items():
        cut_parts.setdefault(texts[entry_index], []).append(texts[part_index])

    entries: list[Entry] = []
    unreadable: list[tuple[str, Malformed]] = []
    unreadable_aliases: list[str] = []
    for number, (entry_text, parsed) in enumerate(zip(texts, parse_image_list(text), strict=True)):
        if number in entry_of_cut_part:
            continue
        if isinstance(parsed, Entry):
            entries.append(parsed)
            continue
        unreadable.append((entry_text, parsed))
        alias, equals, _ = entry_text.partition("=")
        if equals:
            unreadable_aliases.append(alias.strip())

    aliases: set[str] = set()
    for entry in entries:
        if entry.alias:
            aliases.update(prefixes(entry))
    without_alias = _entries_by_prefix(entries, frozenset(aliases))
    return ImageList(
        entries=tuple(entries),
        unreadable=tuple(unreadable),
        unreadable_aliases=tuple(unreadable_aliases),
        cut_parts=cut_parts,
        aliases=frozenset(aliases),
        without_alias=without_alias,
        names=frozenset((*aliases, *unreadable_aliases, *without_alias)),
    )


def _entries_by_prefix(entries: Iterable[Entry], aliases: frozenset[str]) -> dict[str, Entry]:
    """Return the entries without an alias, by each of their prefixes. If several entries have the
    same prefix, it belongs to the first one.
    """
    entry_by_prefix: dict[str, Entry] = {}
    for entry in entries:
        if not entry.alias:
            for prefix in prefixes(entry, aliases):
                entry_by_prefix.setdefault(prefix, entry)
    return entry_by_prefix


# Image key → prefix ("" for the Application-wide form) → value.
Index = Mapping[str, Mapping[str, str]]


def index(annotations: Mapping[str, str]) -> Index:
    """Return the values of an Application's image keys, indexed by key and prefix: `{"allow-tags":
    {"web": "regexp:^v"}}`.

    Empty values are omitted, except for a per-image `ignore-tags`.

    In AIU v0, an empty per-image value overrides the Application-wide one. In v1, this is true only
    for `ignore-tags`; any other empty value is treated as absent.
    """
    values_by_key: dict[str, dict[str, str]] = {}
    for full_key, value in annotations.items():
        prefix, key = split_key(full_key)
        if not key:
            continue
        empty_value_counts = key == "ignore-tags" and prefix != ""
        if value or empty_value_counts:
            values_by_key.setdefault(key, {})[prefix] = value
    return values_by_key


def split_key(full_key: str) -> tuple[str, str]:
    """Split a per-image key into its prefix and the image key: `web.helm.image-tag` into
    (`web`, `helm.image-tag`).

    The prefix is "" for an Application-wide key. Returns ("", "") for any other annotation.
    """
    for key in IMAGE_KEYS:
        if full_key == key:
            return "", key
        prefix = full_key.removesuffix(f".{key}")
        has_prefix = prefix not in ("", full_key)
        if has_prefix:
            return prefix, key
    return "", ""


def settings(annotated: Index, names: Iterable[str]) -> dict[str, Setting]:
    """Return an entry's settings, indexed by image key. If no annotation sets a key, its setting is
    `Setting()`.

    `names` are the prefixes of the entry's own keys, such as `web`. Settings under them take
    precedence over Application-wide settings, and the first prefix takes precedence over the
    others.
    """
    setting_by_key = {}
    for key, value_of_prefix in annotated.items():
        for name in (*names, ""):
            if name in value_of_prefix:
                full_key = f"{name}.{key}" if name else key
                setting_by_key[key] = Setting(full_key, value_of_prefix[name])
                break
    unset_keys = {key: Setting() for key in IMAGE_KEYS if key not in setting_by_key}
    return setting_by_key | unset_keys


# Go's strconv.ParseBool, which AIU v1 uses.
TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def boolean(setting: Setting) -> bool:
    """Parse a boolean in any spelling that AIU v1 accepts. An absent setting is False.

    Raises `Faulty` for any other string.
    """
    if setting.value in TRUE:
        return True
    if not setting or setting.value in FALSE:
        return False
    raise setting.wrong(f"{setting.value!r} is neither true nor false", 'use "true" or "false"')


def platforms(setting: Setting) -> tuple[str, ...]:
    """Return the platform names in a setting, trimmed."""
    return tuple(platform.strip() for platform in setting.value.split(",") if platform.strip())


def write_back_method(value: str) -> tuple[str, str]:
    """Return the method (`git` or `argocd`) and the source of the credentials in a
    `write-back-method`, such as `git:secret:argocd/git-creds`.

    The source is `secret:<namespace>/<name>`, `secret:<name>`, or "" for Argo CD's own credentials.
    The default method is `git`; in AIU, it is `argocd`. Raises `Faulty`.
    """
    method, colon, credentials = (part.strip() for part in value.partition(":"))
    # only the git method uses credentials
    allowed_methods = ("git",) if colon else ("", "git", "argocd")
    lacks_credentials = bool(colon) and not credentials
    if method not in allowed_methods or lacks_credentials:
        hint = "use git, git:repocreds, git:secret:<namespace>/<name>, or argocd"
        raise Faulty("write-back-method", value, f"unknown write-back method {value!r}", hint)
    if credentials in ("", "repocreds"):  # use Argo CD's own secret for the URL
        return method or "git", ""

    kind, _, secret = credentials.partition(":")
    parts = secret.split("/")
    is_secret_name = all(parts) and len(parts) <= 2  # <name>, or <namespace>/<name>
    if kind != "secret" or not is_secret_name:
        message = f"invalid git credentials source {credentials!r}"
        raise Faulty("write-back-method", value, message, "use git:secret:<namespace>/<name>")
    return method, credentials


def git_branch(value: str) -> tuple[str, str]:
    """Return the base branch and the template of the head branch (which a pull request proposes)
    from a `git-branch` value, `<base>:<head>`. Each is "" if the value does not contain it.

    A `:` inside `{{ }}` does not split the value. AIU splits at every `:`, so its templates cannot
    contain one. Raises `Faulty`.
    """
    parts = []
    depth = 0  # how deeply `{{ }}` is nested here
    start = 0  # where the current part starts
    for position, char in enumerate(value):
        if value.startswith("{{", position):
            depth += 1
        elif value.startswith("}}", position) and depth > 0:
            depth -= 1
        if char == ":" and depth == 0:
            parts.append(value[start:position].strip())
            start = position + 1
    parts.append(value[start:].strip())
    has_more_than_base_and_head = len(parts) > 2
    if has_more_than_base_and_head:
        raise Faulty(
            "git-branch",
            value,
            f"{value!r} has more than two parts",
            "use <base>:<head>",
        )
    base = parts[0]
    head_template = parts[1] if len(parts) > 1 else ""
    return base, head_template


# Keys from older manifests, guides, and AIU forks, in their `normal_spelling`. `{}` stands for the
# alias and the dot after it. Deckhouse's fork updates charts (`chart-version`). The `git-…` keys
# are settings in AIU's ConfigMap or on its command line, but guides show them as annotations.
FORMER: Mapping[str, str] = {
    "credentials": "use {}pull-secret",
    "git-credentials": "use write-back-method: git:secret:<namespace>/<name>",
    "git-secret": "use write-back-method: git:secret:<namespace>/<name>",
    "git-commit-message": "pass --commit-message-template",
    "git-commit-message-template": "pass --commit-message-template",
    "git-commit-template": "pass --commit-message-template",
    "git-commit-user": "pass --git-author-name",
    "git-user": "pass --git-author-name",
    "git-username": "pass --git-author-name",
    "git-commit-email": "pass --git-author-email",
    "git-email": "pass --git-author-email",
    "git-commit-sign-off": "pass --sign-off",
    "git-commit-signing-key": "pass --signing-key",
    "git-commit-signing-method": "pass --signing-format",
    # No version ever read these, but people guess them (AIU issue 1018).
    "filter-tag": "use {}allow-tags: regexp:…",
    "filter-tags": "use {}allow-tags: regexp:…",
    "image-name": "use {0}helm.image-name or {0}kustomize.image-name",
    "image-tag": "use {}helm.image-tag",
    "chart-version": "set the range as targetRevision of the chart's source; Argo CD follows it",
}
SHOWN = 10  # the number of aliases listed in a hint
# characters; Kubernetes allows 63 after the prefix, but manifests in Git are not validated
LONGEST = 253


DoubtKind = Literal["near", "former", "level", "orphan", "unknown"]


@dataclass(frozen=True)
class Doubt(Troubled):
    """A key that has no effect, the reason, and the key to use instead."""

    # near: a near miss of a known key. former: a key from an older version or a fork. level: an
    # Application-wide key under an alias. orphan: a per-image key whose prefix does not belong to
    # any entry. unknown: anything else.
    kind: DoubtKind
    trouble: Trouble
    meant: str = ""  # the full key that was probably meant: "web.allow-tags"
    name: str = ""  # for a near miss, the prefix of the entries it applies to; "" means every entry

    @property
    def governs(self) -> bool:
        """Whether the key is a misspelled rule or write-back location. If so, the entries it
        applies to must not be updated.
        """
        return self.kind == "near" and self.meant != "image-list"


def doubts(annotations: Mapping[str, str]) -> tuple[tuple[str, Doubt], ...]:
    """Return the keys (without the prefix) of the annotations that have no effect, each with a
    `Doubt` that explains why and names the key to use instead.
    """
    image_list = annotations.get("image-list", "")
    doubt_of_each_key = ((key, doubt(key, image_list)) for key in annotations)
    return tuple((key, key_doubt) for key, key_doubt in doubt_of_each_key if key_doubt)


@lru_cache(maxsize=4096)
def doubt(key: str, image_list: str) -> Doubt | None:
    """Return a `Doubt` if the key has no effect with this `image-list`, or else None."""
    parsed_list = read_image_list(image_list)
    prefix, image_key = split_key(key)
    is_image_key = image_key != ""
    prefix_is_listed = not prefix or prefix in parsed_list.names
    if key in APPLICATION_KEYS or (is_image_key and prefix_is_listed):
        return None
    if len(key) > LONGEST:
        return _doubt_of("unknown", f"unknown annotation {key[:LONGEST]!r}…", "remove it")
    # The first doubt is the most likely. There is always at least one, because "unknown" fits any
    # key.
    return next(_doubts(key, parsed_list, correctly_spelled=is_image_key))


def _doubts(key: str, image_list: ImageList, *, correctly_spelled: bool) -> Iterator[Doubt]:
    """Yield possible reasons why a key has no effect, the most likely first.

    `correctly_spelled` means that the part after the prefix is a known per-image key, so that only
    the prefix may be wrong.
    """
    # An entry's alias and a wrong key: `web.alow-tags`. An alias may contain dots, so a key can be
    # split at several places. Try the longest alias first.
    splits = _splits(key)
    for prefix, suffix in splits:
        if prefix in image_list.names:
            yield from _doubts_with_an_alias(key, prefix, suffix)

    # A key from another version (`git-credentials`), an Application-wide key under any prefix
    # (`other.git-branch`), or a misspelled key without a prefix (`allow_tags`).
    if normal_spelling(key) in FORMER:
        yield _former_key(key, "", key)
    for _, suffix in splits:
        if suffix in APPLICATION_KEYS:
            yield _wrong_level(key, suffix)
    all_keys = (*APPLICATION_KEYS, *IMAGE_KEYS)
    similar_key = "" if correctly_spelled else nearest(key, all_keys)
    if similar_key:
        yield _near_miss(key, similar_key)

    # A misspelled alias (`Web.allow-tags`), or the wrong character after it (`web-allow-tags`).
    separators = "." if correctly_spelled else "._-"
    yield from _doubts_with_a_misspelled_alias(key, _splits(key, separators), image_list)

    # A prefix that no entry uses: `removed.helm.image-tag`. Try the shortest prefix first, because
    # `image-tag` alone looks like a key from another version.
    for prefix, suffix in reversed(splits):
        yield from _doubts_with_an_unknown_prefix(key, prefix, suffix, image_list)

    # Anything else. A guess in a hint may differ in more characters than a near miss.
    guess = nearest(key, all_keys, len(key) // 3)
    hint = f"did you mean {guess}? " if guess else ""
    yield _doubt_of(
        "unknown",
        f"unknown annotation {key!r}",
        f"{hint}See the list of annotations, or remove it",
        guess,
    )


def _doubts_with_an_alias(key: str, alias: str, suffix: str) -> Iterator[Doubt]:
    """Yield possible reasons why a key has no effect. The key consists of an entry's alias, a dot,
    and `suffix`.
    """
    if suffix in APPLICATION_KEYS:
        yield _wrong_level(key, suffix)
    if normal_spelling(suffix) in FORMER:
        yield _former_key(key, alias, suffix)
    similar_key = nearest(suffix, IMAGE_KEYS)
    if similar_key:
        yield _near_miss(key, similar_key, alias)


def _doubts_with_a_misspelled_alias(
    key: str,
    splits: Iterable[tuple[str, str]],
    image_list: ImageList,
) -> Iterator[Doubt]:
    """Yield possible reasons why a key has no effect. The key's prefix is a misspelled alias: both
    have the same normal spelling, as `Web` and `web` do. `splits` contains each possible prefix,
    with the rest of the key.
    """
    alias_by_spelling = {normal_spelling(name): name for name in sorted(image_list.names)}
    for prefix, suffix in splits:
        alias = alias_by_spelling.get(normal_spelling(prefix), "")
        similar_key = nearest(suffix, IMAGE_KEYS) if alias else ""
        if similar_key:
            yield _near_miss(key, similar_key, alias)


def _doubts_with_an_unknown_prefix(
    key: str,
    prefix: str,
    suffix: str,
    image_list: ImageList,
) -> Iterator[Doubt]:
    """Yield possible reasons why a key has no effect. The key consists of a prefix that no entry
    uses, a dot, and `suffix`.
    """
    if normal_spelling(suffix) in FORMER:
        yield _former_key(key, prefix, suffix)
    similar_key = nearest(suffix, IMAGE_KEYS)
    if similar_key:
        yield _orphan_key(key, prefix, similar_key, image_list)


def _doubt_of(
    kind: DoubtKind,
    message: str,
    hint: str,
    meant: str = "",
    name: str = "",
) -> Doubt:
    return Doubt(kind=kind, trouble=Trouble("annotation", message, hint), meant=meant, name=name)


def _splits(key: str, separators: str = ".") -> list[tuple[str, str]]:
    """Return every way to split a key into an alias and the rest, with the longest alias first.

    `separators` are the characters that may follow the alias. `a.b.c` becomes (`a.b`, `c`) and
    (`a`, `b.c`).
    """
    positions = [position for position in range(len(key) - 1, 0, -1) if key[position] in separators]
    return [(key[:position], key[position + 1 :]) for position in positions]


def _near_miss(key: str, known_key: str, alias: str = "") -> Doubt:
    """Return a doubt about a near miss of a known key, with or without an alias."""
    if known_key == "tag-match":  # the old name of allow-tags
        known_key = "allow-tags"
    correct_key = f"{alias}.{known_key}" if alias else known_key
    return _doubt_of(
        "near",
        f"unknown annotation {key!r}",
        f"rename it to {correct_key}, or remove it",
        meant=correct_key,
        name=alias,
    )


def _former_key(key: str, prefix: str, suffix: str) -> Doubt:
    """Return a doubt about a key from another version or a fork, with or without a prefix."""
    advice = FORMER[normal_spelling(suffix)]
    replacement = advice.format(f"{prefix}." if prefix else "")
    return _doubt_of(
        "former",
        f"{key} has no effect: it comes from another version of Image Updater, a fork, or a guide",
        replacement,
    )


def _wrong_level(key: str, known_key: str) -> Doubt:
    """Return a doubt about an Application-wide key that has a prefix."""
    hint = f"use {known_key} for the whole Application"
    return _doubt_of(
        "level", f"{key} has no effect: {known_key} has no per-image form", hint, known_key
    )


def _orphan_key(key: str, prefix: str, known_key: str, image_list: ImageList) -> Doubt:
    """Return a doubt about a per-image key whose prefix does not belong to any entry.

    `known_key` is the part after the prefix, spelled correctly.
    """
    similar_alias = nearest(prefix, image_list.shown)
    aliases = ", ".join(image_list.shown[:SHOWN])
    if len(image_list.shown) > SHOWN:
        aliases = f"{aliases}, …"
    if similar_alias:
        meant = f"{similar_alias}.{known_key}"
        hint = f"did you mean {meant}? The aliases are {aliases}"
    else:
        meant = ""
        known_aliases = f"the aliases are {aliases}" if aliases else "no entry has an alias"
        hint = f"add {prefix}=<image> to image-list, or remove the annotation; {known_aliases}"
    message = f"{key} has no effect: no image-list entry has the alias {prefix!r}"
    return _doubt_of("orphan", message, hint, meant)


DOCKER_CONFIG = ".dockerconfigjson"
_LOGIN_HINT = (
    "use pullsecret:<namespace>/<name>, secret:<namespace>/<name>#<field>, env:<VARIABLE>, or"
    " ext:</path/to/script>"
)
CredentialKind = Literal["pullsecret", "secret", "env", "ext"]


@dataclass(frozen=True)
class CredentialSource:
    """A source of registry credentials, as set by `pull-secret`, or by `credentials` in
    registries.conf.

    It does not contain the secret itself.

    Fields that do not apply to the kind are "".
    """

    kind: CredentialKind
    registry: str = ""  # the part before `=`; "" if there is none
    namespace: str = ""
    name: str = ""
    field: str = ""
    env: str = ""
    script: str = ""


def parse_credential_source(spec: str) -> CredentialSource:
    """Parse a credential source, `[registry=]kind:place`, such as `env:TOKEN`. Raises `Malformed`.

    As in AIU, a script's path is not checked here, but it must be absolute when the script runs.
    """
    registry, _, source = spec.partition("=")
    has_registry = bool(registry and source)
    if not has_registry:
        registry = ""
        source = spec
    word, colon, location = source.partition(":")
    if not colon or not location or ":" in location:
        raise Malformed(f"{shortened(spec)!r} is not a credential source", _LOGIN_HINT)
    kind = word.lower()
    if kind == "env":
        return CredentialSource("env", registry, env=location)
    if kind == "ext":
        return CredentialSource("ext", registry, script=location)
    if kind not in ("pullsecret", "secret"):
        raise Malformed(
            f"{shortened(spec)!r}: unknown credential kind {shortened(word)!r}",
            _LOGIN_HINT,
        )
    if kind == "secret":
        secret, _, field = location.partition("#")
        namespace, name = _parse_secret(secret, field, spec)
        return CredentialSource("secret", registry, namespace=namespace, name=name, field=field)
    # As in AIU, a `#` is part of a pull secret's name.
    namespace, name = _parse_secret(location, DOCKER_CONFIG, spec)
    return CredentialSource(
        "pullsecret", registry, namespace=namespace, name=name, field=DOCKER_CONFIG
    )


def _parse_secret(secret: str, field: str, spec: str) -> tuple[str, str]:
    """Return the namespace and the name in `secret`, which is `<namespace>/<name>`.

    Raises `Malformed` if a part or the `field` is missing or invalid. `spec` is the whole source,
    for the error message.
    """
    namespace, _, name = secret.partition("/")
    if not all((namespace, name, field)) or "/" in name or "#" in field:
        raise Malformed(f"{shortened(spec)!r} does not refer to a secret", _LOGIN_HINT)
    return namespace, name
