"""The annotation keys: their legal values, and which of several spellings and levels wins.

docs/annotations.md says what each key means. Facts about Argo CD Image Updater (AIU) are those of v0.18 and v1.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from task.errors import Malformed
from task.image import split_registry
from task.model import Entry, Strategy

STRATEGIES: Mapping[str, Strategy] = {
    "semver": "semver",
    "newest-build": "newest-build",
    "alphabetical": "alphabetical",
    "digest": "digest",
}
DEPRECATED: Mapping[str, Strategy] = {"latest": "newest-build", "name": "alphabetical"}

APPLICATION_KEYS = (
    "image-list",
    "write-back-method",
    "write-back-target",
    "git-branch",
    "git-repository",
    "write-back-source",
    "pull-request",
)
IMAGE_KEYS = (
    "update-strategy",
    "allow-tags",
    "ignore-tags",
    "tag-match",
    "force-update",
    "pull-secret",
    "platforms",
    "pin-digest",
    "helm.image-name",
    "helm.image-tag",
    "helm.image-spec",
    "kustomize.image-name",
    "plugin.image-name",
    "plugin.image-tag",
    "plugin.image-spec",
    "manifests.image-name",
)


@dataclass(frozen=True)
class Setting:
    """A value, and the key (without prefix) that says it; both "" where nothing does."""

    key: str = ""
    value: str = ""

    def __bool__(self) -> bool:
        return bool(self.key)


class Faulty(Malformed):
    """An annotation whose value cannot be used; knows its key and value."""

    def __init__(self, key: str, value: str, message: str, hint: str = "") -> None:
        super().__init__(f"{key}: {message}", hint)
        self.key = key
        self.value = value


Warn = Callable[[str, str, str, str], None]  # key, value, message, hint


def prefixes(entry: Entry, taken: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The names under which the per-image keys of an entry are looked up; the first one found wins.

    With an alias: the alias with "/" as "_" (AIU v0) and as written (v1). Without: the whole
    name and its path with "/" as "_", then its last part, unless an alias has that name (`taken`).
    """
    if entry.alias:
        return tuple(dict.fromkeys((entry.alias.replace("/", "_"), entry.alias)))
    name = entry.image.name
    _, path = split_registry(name)
    names = (name.replace("/", "_"), path.replace("/", "_"), path.rpartition("/")[2])
    return tuple(one for one in dict.fromkeys(names) if one not in taken)


# Image key → name in front of it ("" for the Application-wide form) → value.
Index = Mapping[str, Mapping[str, str]]


def index(annotations: Mapping[str, str]) -> Index:
    """The per-image settings of an Application. Empty values are left out, but for a per-image `ignore-tags`."""
    found: dict[str, dict[str, str]] = {}
    for full, value in annotations.items():
        name, key = split_key(full)
        if key and (value or (key == "ignore-tags" and name)):
            found.setdefault(key, {})[name] = value
    return found


def split_key(full: str) -> tuple[str, str]:
    """`web.helm.image-tag` → (`web`, `helm.image-tag`); ("", "") for any other key."""
    for key in IMAGE_KEYS:
        if full == key:
            return "", key
        if full.endswith(key) and full[-len(key) - 1] == "." and len(full) > len(key) + 1:
            return full[: -len(key) - 1], key
    return "", ""


def settings(found: Index, names: tuple[str, ...]) -> dict[str, Setting]:
    """The settings of one entry by image key: under its own names first, then Application-wide."""
    held = {}
    for key, values in found.items():
        for name in (*names, ""):
            if name in values:
                held[key] = Setting(f"{name}.{key}" if name else key, values[name])
                break
    return held


def strategy(setting: Setting, default: str, warn: Warn) -> tuple[Strategy, str]:
    """The canonical strategy and the constraint of `semver:<constraint>` ("" without one).

    Raises `Faulty` for an unknown one: AIU silently falls back to semver.
    """
    if not setting:
        return cast("Strategy", default), ""
    name, _, constraint = setting.value.partition(":")
    word = name.strip().lower()
    if word == "semver":
        return "semver", constraint.strip()
    found = DEPRECATED.get(setting.value.lower()) or STRATEGIES.get(setting.value.lower())
    if found is None:
        raise Faulty(
            setting.key,
            setting.value,
            f"unknown update strategy {setting.value!r}",
            f"write one of {', '.join(STRATEGIES)}",
        )
    if setting.value.lower() in DEPRECATED:
        warn(setting.key, setting.value, f"the strategy {setting.value!r} is now called {found!r}", f"write {found}")
    return found, ""


# Go's strconv.ParseBool, which AIU v1 uses.
TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def boolean(setting: Setting) -> bool:
    """A boolean as AIU v1 spells it; absent is false. Raises `Faulty` for any other text."""
    if setting.value in TRUE:
        return True
    if not setting or setting.value in FALSE:
        return False
    raise Faulty(setting.key, setting.value, f"{setting.value!r} is neither true nor false", 'write "true" or "false"')


def platforms(setting: Setting) -> tuple[str, ...]:
    """The platforms named, trimmed; a text of another form than `os/arch[/variant]` matches nothing, as in AIU."""
    return tuple(one.strip() for one in setting.value.split(",") if one.strip())


def write_back_method(value: str) -> tuple[str, str]:
    """`write-back-method` → (`git` | `argocd`, credentials). Credentials: "" or `secret:<namespace>/<name>`."""
    method, colon, credentials = value.partition(":")
    method, credentials = method.strip(), credentials.strip()
    if method not in ("", "git", "argocd") or (method != "git" and colon) or (colon and not credentials):
        raise Faulty(
            "write-back-method",
            value,
            f"unknown write-back method {value!r}",
            "write git, git:repocreds, git:secret:<namespace>/<name> or argocd",
        )
    if credentials in ("", "repocreds"):
        return method or "git", ""
    kind, _, name = credentials.partition(":")
    parts = name.split("/")
    if kind != "secret" or not all(parts) or len(parts) > 2:  # namespace and name
        raise Faulty(
            "write-back-method",
            value,
            f"invalid git credentials source {credentials!r}",
            "write git:secret:<namespace>/<name>",
        )
    return method, credentials


def git_branch(value: str) -> tuple[str, str]:
    """`git-branch` → (base, head template); "" where it says nothing. A `:` inside `{{ }}` does not split."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(value):
        two = value[i : i + 2]
        depth += (two == "{{") - (two == "}}" and depth > 0)
        if char == ":" and depth == 0:
            parts.append(value[start:i].strip())
            start = i + 1
    parts.append(value[start:].strip())
    if len(parts) > 2:  # base and head
        raise Faulty("git-branch", value, f"{value!r} has more than two parts", "write <base>:<head>")
    return parts[0], parts[1] if len(parts) > 1 else ""
