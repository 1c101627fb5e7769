"""Pure: one Application → every problem of its annotations, each with what to write.

`lint` is where everything is an error that `run` would stumble over, and where typical
mistakes get a sentence of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Literal

from task.errors import Malformed
from task.model import Application, Entry, Flaw, Subscribed
from task.parse.annotations import APPLICATION_KEYS, IMAGE_KEYS, prefixes
from task.parse.credentials import parse_credential_source
from task.parse.image import parse_image_list, split_image_list
from task.parse.subscription import Defaults, subscribe
from task.record import NamedTuple
from task.rules.platforms import is_platform
from task.words.branch_name import check_branch_template

Severity = Literal["error", "warning", "info"]
OURS = ("pull-request", "write-back-source", "pin-digest", "manifests.image-name")
# AIU reads these per image only; here their Application-wide form counts for every image.
PER_IMAGE_IN_AIU = (*(key for key in IMAGE_KEYS if "." in key), "platforms")
WITH_ALIAS_ONLY = "AIU reads per-image keys only under an alias"


class Finding(NamedTuple):
    """One problem, where it is and what to write."""

    application: str
    key: str
    value: str
    severity: Severity
    message: str
    hint: str
    origin: str  # "file:line" of the manifest, "" when it came from elsewhere


def findings(app: Application, defaults: Defaults = Defaults()) -> tuple[Finding, ...]:
    """Everything about the annotations of one Application, errors first."""
    subscribed = subscribe(app, defaults)
    found = [of_flaw(app, flaw) for flaw in subscribed.flaws if flaw.severity != "info" and not _cut_off(flaw.text)]
    found += _list(app)
    found += [finding for key in app.annotations for finding in _key(app, key)]
    found += [finding for key in app.annotations for finding in _value(app, key)]
    found += _shared(app, subscribed)
    found += _targets(app, subscribed)
    order = ("error", "warning", "info")
    return tuple(sorted(dict.fromkeys(found), key=lambda one: order.index(one.severity)))


def _finding(app: Application, key: str, severity: Severity, message: str, hint: str) -> Finding:
    return Finding(app.key, key, app.annotations.get(key, ""), severity, message, hint, app.origin)


def of_flaw(app: Application, flaw: Flaw) -> Finding:
    """A flaw as a finding."""
    return Finding(app.key, flaw.key, flaw.value, flaw.severity, flaw.message, flaw.hint, app.origin)


def _list(app: Application) -> Iterator[Finding]:
    text = app.annotations.get("image-list", "")
    if app.annotations and not split_image_list(text):
        yield _finding(
            app,
            "image-list",
            "warning",
            "there are annotations but no image-list: nothing is ever updated",
            "write image-list: <alias>=<image>",
        )
    for piece in filter(_cut_off, split_image_list(text)):
        yield _finding(
            app,
            "image-list",
            "error",
            f"{piece!r} stands behind a comma: a comma ends an entry",
            "join constraints with a blank: >=1.2 <2",
        )


def _cut_off(piece: str) -> bool:
    """Whether an entry is the rest of a constraint that a comma cut."""
    return piece[:1] in tuple("<>=!^~")


def _key(app: Application, key: str) -> Iterator[Finding]:
    """An unknown key, an alias that no entry has, a level that AIU does not know."""
    if key in APPLICATION_KEYS or key in IMAGE_KEYS:
        if key in PER_IMAGE_IN_AIU:
            yield _finding(
                app,
                key,
                "info",
                f"{key} counts for every image here; AIU ignores it without an alias",
                f"write <alias>.{key}",
            )
        elif key in OURS:
            yield _finding(app, key, "info", f"{key} works here; AIU ignores it", "")
        return
    known = next((name for name in sorted(IMAGE_KEYS, key=len, reverse=True) if key.endswith(f".{name}")), "")
    if known:
        yield from _alias(app, key, key[: -len(known) - 1], known)
        return
    level = next((name for name in APPLICATION_KEYS if key.endswith(f".{name}")), "")
    if level:
        yield _finding(
            app,
            key,
            "error",
            f"{level} has no per-image form: it is ignored",
            f"write {level} for the whole Application",
        )
        return
    near = _near(key)
    hint = f"did you mean {near[0]}?" if near else "see the list of annotations in the documentation"
    yield _finding(app, key, "error" if near else "warning", f"unknown annotation {key!r}", hint)


def _value(app: Application, key: str) -> Iterator[Finding]:
    """A value that only the registry's turn would show to be wrong."""
    value = app.annotations[key]
    if not value:
        return
    if key == "pull-secret" or key.endswith(".pull-secret"):
        try:
            parse_credential_source(value)
        except Malformed as error:
            yield _finding(app, key, "error", f"{key}: {error.message}", error.hint)
    if key == "platforms" or key.endswith(".platforms"):
        names = [name for one in value.split(",") if (name := one.strip())] or [value]
        if bad := [name for name in names if not is_platform(name)]:
            message = f"{key}: {bad[0]!r} is no platform: no image is ever for it"
            yield _finding(app, key, "error", message, "write <os>/<architecture>[/<variant>], as in linux/arm64")
        elif value != value.lower():
            message = f"{key}: platforms are written in small letters: no image is ever for {value!r}"
            yield _finding(app, key, "error", message, f"write {value.lower()}")


def _near(key: str) -> list[str]:
    """The known key that was meant, if one is near; under the same alias where the key has one."""
    alias, dot, rest = key.partition(".")
    per_image = get_close_matches(rest, IMAGE_KEYS, 1) if dot else []
    return [f"{alias}.{name}" for name in per_image] or get_close_matches(key, (*APPLICATION_KEYS, *IMAGE_KEYS), 1)


def _alias(app: Application, key: str, alias: str, known: str) -> Iterator[Finding]:
    entries = [one for one in parse_image_list(app.annotations.get("image-list", "")) if isinstance(one, Entry)]
    aliases = {name for one in entries if one.alias for name in prefixes(one)}
    if alias in aliases:
        if known in OURS:
            yield _finding(app, key, "info", f"{known} works here; AIU ignores it", "")
        return
    bare = [one for one in entries if not one.alias and alias in prefixes(one, frozenset(aliases))]
    if bare:
        yield _finding(
            app,
            key,
            "info",
            f"the entry {bare[0].text!r} has no alias; {WITH_ALIAS_ONLY}",
            f"write {alias}={bare[0].text} in image-list",
        )
        return
    near = get_close_matches(alias, sorted(aliases), 1)
    hint = (
        f"did you mean {near[0]}.{known}?"
        if near
        else f"write {alias}=<image> in image-list, or use one of: {', '.join(sorted(aliases)) or 'no alias yet'}"
    )
    yield _finding(app, key, "error", f"no entry of image-list has the alias {alias!r}", hint)


def _shared(app: Application, subscribed: Subscribed) -> Iterator[Finding]:
    """Two images that take turns in one Helm value: each event would undo the other's."""
    taken: dict[tuple[str, str], str] = {}
    for sub in subscribed.subscriptions:
        if sub.target != "helmvalues" and (sub.target not in ("override", "file") or sub.source.kind != "Helm"):
            continue
        key = sub.keys.spec or sub.keys.tag or "image.tag"
        other = taken.setdefault((sub.path, key), sub.entry.text)
        if other != sub.entry.text:
            yield _finding(
                app,
                "image-list",
                "error",
                f"{other!r} and {sub.entry.text!r} are both written to {key}",
                f"write {sub.entry.alias or '<alias>'}.helm.image-tag and .helm.image-name, each alias its own",
            )


def _targets(app: Application, subscribed: Subscribed) -> Iterator[Finding]:
    """What only shows when a target meets its keys or its source."""
    for sub in subscribed.subscriptions:
        if sub.entry.constraint and sub.policy.strategy in ("newest-build", "alphabetical"):
            yield _finding(
                app,
                "image-list",
                "warning",
                f"{sub.entry.text!r}: {sub.policy.strategy} takes every tag, whatever {sub.entry.constraint!r} says",
                "leave it out, and write allow-tags: regexp:… to choose tags",
            )
        if sub.keys.name and sub.keys.name == sub.keys.tag and not sub.keys.spec:
            yield _finding(
                app,
                "image-list",
                "error",
                f"helm.image-name and helm.image-tag of {sub.entry.text!r} are both {sub.keys.name!r}",
                f"write {sub.entry.alias or '<alias>'}.helm.image-spec: {sub.keys.name}",
            )
        if sub.target == "helmvalues" and sub.keys.name and not (sub.keys.tag or sub.keys.spec):
            yield _finding(
                app,
                "write-back-target",
                "error",
                f"helmvalues with only helm.image-name for {sub.entry.text!r}: the tag would go nowhere",
                f"write {sub.entry.alias or '<alias>'}.helm.image-tag",
            )
        if sub.target == "override" and sub.source.kind == "Directory" and sub.method == "git":
            yield _finding(
                app,
                "write-back-target",
                "error",
                "the source is a plain directory, which has no override file",
                "write write-back-target: manifests",
            )
        if sub.head and (trouble := _template_trouble(sub.head)):
            yield _finding(
                app, "git-branch", "error", f"git-branch: {trouble}", "write a Go text/template without sprig functions"
            )


def _template_trouble(template: str) -> str:
    try:
        check_branch_template(template)
    except Malformed as error:
        return error.message
    return ""
