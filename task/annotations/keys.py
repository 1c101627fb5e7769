"""The annotation keys: their legal values, and which of several spellings and levels wins.

docs/annotations.md says what each key means. Comments about Argo CD Image Updater (AIU) are about v0.18 (v0), the last
version that reads annotations by default, and v1.3 (v1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from task.errors import Malformed
from task.image import split_registry
from task.model import Entry, Strategy
from task.policy.strategies import STRATEGIES

DEPRECATED: Mapping[str, Strategy] = {"latest": "newest-build", "name": "alphabetical"}  # renamed in AIU v0.13

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
    "tag-order",
    "tag-match",
    "force-update",
    "pull-secret",
    "platforms",
    "pin-digest",
    "helm.image-name",
    "helm.image-tag",
    "helm.image-spec",
    "helm.image-digest",
    "kustomize.image-name",
    "plugin.image-name",
    "plugin.image-tag",
    "plugin.image-spec",
    "manifests.image-name",
)


@dataclass(frozen=True)
class Setting:
    """A value and its key, without the prefix. Both are "" if no annotation sets it."""

    key: str = ""
    value: str = ""

    def __bool__(self) -> bool:
        return bool(self.key)


class Faulty(Malformed):
    """An annotation has an unusable value. The error has the key and the value."""

    def __init__(self, key: str, value: str, message: str, hint: str = "") -> None:
        super().__init__(f"{key}: {message}", hint)
        self.key = key
        self.value = value


Warn = Callable[[str, str, str, str], None]  # key, value, message, hint


def prefixes(entry: Entry, taken: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the names under which the per-image keys of an entry are searched. The first one with a value wins.

    With an alias, they are the alias with "/" as "_" (AIU v0), and the alias as written (v1). Without one, they are the
    whole name and its path, both with "/" as "_", then its last part, unless an alias has that name (`taken`). AIU
    reads no per-image key without an alias, but people expect it to.
    """
    if entry.alias:
        return tuple(dict.fromkeys((entry.alias.replace("/", "_"), entry.alias)))
    name = entry.image.name
    _, path = split_registry(name)
    names = (name.replace("/", "_"), path.replace("/", "_"), path.rpartition("/")[2])
    return tuple(name for name in dict.fromkeys(names) if name not in taken)


# Image key → name before it ("" for the Application-wide form) → value.
Index = Mapping[str, Mapping[str, str]]


def index(annotations: Mapping[str, str]) -> Index:
    """Return the per-image settings of an Application. Empty values are left out, except a per-image `ignore-tags`.

    In AIU v0, an empty per-image value hides the Application-wide one. In v1, this is so only for `ignore-tags`, and
    any other empty value counts as absent.
    """
    values: dict[str, dict[str, str]] = {}
    for full, value in annotations.items():
        name, key = split_key(full)
        if key and (value or (key == "ignore-tags" and name)):
            values.setdefault(key, {})[name] = value
    return values


def split_key(full: str) -> tuple[str, str]:
    """Split `web.helm.image-tag` into (`web`, `helm.image-tag`). Returns ("", "") for any other key."""
    for key in IMAGE_KEYS:
        if full == key:
            return "", key
        if full.endswith(key) and full[-len(key) - 1] == "." and len(full) > len(key) + 1:
            return full[: -len(key) - 1], key
    return "", ""


def settings(annotated: Index, names: tuple[str, ...]) -> dict[str, Setting]:
    """Return the settings of one entry by image key: those under its own names win over the Application-wide ones."""
    chosen = {}
    for key, values in annotated.items():
        for name in (*names, ""):
            if name in values:
                chosen[key] = Setting(f"{name}.{key}" if name else key, values[name])
                break
    return chosen


def strategy(setting: Setting, default: str, warn: Warn) -> tuple[Strategy, str]:
    """Return the canonical strategy, and the constraint in `semver:<constraint>` or "".

    Raises `Faulty` for an unknown strategy. AIU logs a warning then, and uses semver.
    """
    if not setting:
        return cast("Strategy", default), ""
    name, _, constraint = setting.value.partition(":")
    word = name.strip().lower()
    named = next((one for one in STRATEGIES if one == word), None)
    if named and STRATEGIES[named].constraint == "range":  # guides show `semver:1.6.x`, but AIU reads plain semver
        return named, constraint.strip()
    known = DEPRECATED.get(setting.value.lower()) or (named if word == setting.value.lower() else None)
    if known is None:
        raise Faulty(
            setting.key,
            setting.value,
            f"unknown update strategy {setting.value!r}",
            f"write one of {', '.join(STRATEGIES)}",
        )
    if setting.value.lower() in DEPRECATED:
        warn(setting.key, setting.value, f"the strategy {setting.value!r} is now called {known!r}", f"write {known}")
    return known, ""


# Go's strconv.ParseBool, which AIU v1 uses.
TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def boolean(setting: Setting) -> bool:
    """Return the boolean, in the spellings of AIU v1, or False if the setting is absent.

    Raises `Faulty` for other texts.
    """
    if setting.value in TRUE:
        return True
    if not setting or setting.value in FALSE:
        return False
    raise Faulty(setting.key, setting.value, f"{setting.value!r} is neither true nor false", 'write "true" or "false"')


def platforms(setting: Setting) -> tuple[str, ...]:
    """Return the platforms, trimmed. As in AIU, one that does not have the form `os/arch[/variant]` matches nothing."""
    return tuple(platform.strip() for platform in setting.value.split(",") if platform.strip())


def write_back_method(value: str) -> tuple[str, str]:
    """Return the method (`git` or `argocd`) and the credentials ("" or `secret:<namespace>/<name>`).

    The default method is `git`, but AIU's is `argocd`. Raises `Faulty`.
    """
    method, colon, credentials = value.partition(":")
    method, credentials = method.strip(), credentials.strip()
    if method not in ("", "git", "argocd") or (method != "git" and colon) or (colon and not credentials):
        raise Faulty(
            "write-back-method",
            value,
            f"unknown write-back method {value!r}",
            "write git, git:repocreds, git:secret:<namespace>/<name> or argocd",
        )
    if credentials in ("", "repocreds"):  # Argo CD's own secret for the URL
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
    """Return the base branch and the head's template. Each is "" if the value does not have it.

    A `:` inside `{{ }}` does not split. AIU splits at every `:`, so its templates cannot have one. Raises `Faulty`.
    """
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
