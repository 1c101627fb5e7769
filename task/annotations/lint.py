"""Finds all problems in an Application's annotations, and suggests fixes. Pure.

An annotation that would stop `run` is also an error in `lint`. Typical mistakes from Argo CD Image
Updater (AIU) issues have their own messages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

from task.annotations.advice import (
    blind_pattern,
    is_image,
    is_name_key,
    is_tag,
    is_tag_key,
    key_of,
    listed_as,
    range_of,
)
from task.annotations.image_updater_settings import FIELDS
from task.annotations.keys import (
    DOCKER_CONFIG,
    IMAGE_KEYS,
    OURS,
    Setting,
    doubt,
    doubts,
    git_branch,
    index,
    parse_credential_source,
    read_image_list,
    settings,
    split_key,
)
from task.annotations.subscription import Defaults, EntryReading, attempted, subscribe
from task.annotations.write_back import inside
from task.errors import Malformed, Severity, TaskError, Trouble, Troubled
from task.image import RANGE, cut_ranges, live_image, split_image_list
from task.model import Application, Entry, Flaw, Subscription, Tracker
from task.policy.strategies import commit_in, parse_tag_order, rules_of
from task.templates.branch_name import check_branch_template
from task.text import and_more, counted

# an annotation, the severity, the problem, and the fix
Remark = tuple[str, Severity, str, str]
# AIU reads these only per image, but users expect more (AIU issues 1122 and 1142). Here, their
# Application-wide form applies to every image.
PER_IMAGE_IN_AIU = (*(key for key in IMAGE_KEYS if "." in key), "platforms")
# Placeholders that remain because people copy examples or use a template that is never rendered
# (AIU issues 660 and 877).
PLACEHOLDER = re.compile(
    r"<(?!v?(?:[0-9*]|[xX]\b))[A-Za-z][^<>]*>|\{\{.*|\$?\{[A-Za-z][^{}]*\}|\$\([A-Za-z][^()]*\)|\$[A-Z_]+"
)
PATTERN = re.compile(r"(?:[^=:]*=)?(?:(?:regexp?|glob|semver):|[^:@]*[*?\\^$()|])", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
# Annotation names that Kubernetes accepts: the alias before the dot, and the whole key after
# the prefix.
ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Finding(Troubled):
    """A problem that `lint` found, and its location."""

    trouble: Trouble
    application: str = ""
    key: str = ""
    value: str = ""
    origin: str = ""  # "file:line" of the manifest; "" for an Application from a cluster or Argo CD
    field: str = ""  # in the ImageUpdater at `origin`, if it set the annotation: "allowTags"


def noted(severity: Severity, message: str, hint: str) -> Trouble:
    """Return a trouble as `lint` reports it, which is always as an annotation error."""
    return Trouble("annotation", message, hint, severity)


def findings(app: Application, defaults: Defaults = Defaults()) -> tuple[Finding, ...]:
    """Return all problems of one Application's annotations, errors first."""
    subscribed = subscribe(app, defaults)
    misplaced = dict(_impossible_entries(app.annotations.get("image-list", "")))
    # `_key_mistakes` reports misspelled keys.
    flaws = (flaw for flaw in subscribed.flaws if not flaw.misspelled)
    found = [of_flaw(app, flaw) for flaw in flaws if flaw.text not in misplaced]
    readings, subscriptions = attempted(app, defaults)
    remarks = chain(
        (("image-list", "error", message, hint) for message, hint in misplaced.values()),
        _without_effect(app),
        *(_key_mistakes(app, key) for key in app.annotations),
        *(
            _value_mistakes(key, value)
            for key, value in app.annotations.items()
            if _is_read(app, key)
        ),
        _entry_mistakes(app, misplaced),
        _reading_mistakes(app, readings),
        _shared_helm_values(subscriptions),
        _two_rules(subscriptions),
        _target_mistakes(subscriptions),
        _head_template_mistakes(app),
    )
    found += [_finding(app, *remark) for remark in remarks]
    order = ("error", "warning", "info")
    return tuple(sorted(dict.fromkeys(found), key=lambda finding: order.index(finding.severity)))


def _without_effect(app: Application) -> Iterator[Remark]:
    """Yield a warning if no image is listed, and for annotations that
    `write-back-method: argocd` ignores.
    """
    # `_key_mistakes` reports a misspelled image-list
    misspelled = any(doubtful.meant == "image-list" for _, doubtful in doubts(app.annotations))
    images = split_image_list(app.annotations.get("image-list", ""))
    if app.annotations and not images and not misspelled:
        message = "there are annotations but no image-list, so nothing is ever updated"
        yield "image-list", "warning", message, "add image-list: <alias>=<image>"
    if app.annotations.get("write-back-method") == "argocd":
        for key in ("write-back-target", "git-branch", "git-repository"):
            if app.annotations.get(key):
                message = (
                    f"{key} has no effect with write-back-method: argocd, which does not write"
                    " files"
                )
                yield key, "warning", message, f"use write-back-method: git, or remove {key}"


def without_method(apps: Iterable[Application]) -> tuple[Finding, ...]:
    """Return one remark about all Applications that do not set a method, because the default
    differs between the two tools.
    """
    without = [
        app
        for app in apps
        if app.annotations.get("image-list")
        and not app.annotations.get("write-back-method")
        and not app.annotations.get("write-back-target", "").startswith("manifests")
        and not any(key.endswith(OURS) for key in app.annotations)
    ]
    if not without:
        return ()
    names = and_more([app.key for app in without], 3)
    message = (
        "no write-back-method is set: Image Updater patches the live Application, but Image Update"
        f" commits to Git ({names})"
    )
    hint = "set it to git or argocd, so that both tools do the same"
    found = _finding(without[0], "write-back-method", "info", message, hint)
    if len(without) > 1:
        found = replace(found, application="")
    return (found,)


def told_once(apps: Iterable[Application], defaults: Defaults = Defaults()) -> tuple[Finding, ...]:
    """Return the problems of all Applications.

    A problem from an ApplicationSet or ImageUpdater is reported once. A mistake in a template is in
    every generated Application, with different values for its placeholders. Other mistakes come
    from a parameter, so such findings are merged only if their messages are the same.
    """
    generated = Counter[tuple[str, str]]()  # Applications by their ApplicationSet and its location
    similar: dict[tuple[object, ...], list[_Member]] = {}
    position = 0
    for app in apps:
        generated[app.generated_by, app.origin] += 1
        repeated = Counter[tuple[object, ...]]()
        for finding in findings(app, defaults):
            position += 1
            key: tuple[object, ...] = (position,)  # a finding without a maker stands alone
            if _maker(app, finding):
                shape = _common_part(app, finding)
                repeated[shape] += 1
                key = (*shape, repeated[shape])
            similar.setdefault(key, []).append((position, app, finding))
    reported: dict[int, Finding] = {}
    for members in similar.values():
        _, app, example = members[0]
        # A finding in every generated Application is a mistake in the template.
        if example.field or len(members) == generated[app.generated_by, app.origin]:
            groups = [members]
        else:
            groups = _of_the_same_words(members)
        for (position, app, first), *others in groups:
            reported[position] = _of_several(app, first, len(others)) if others else first
    return tuple(reported[position] for position in sorted(reported))


_Member = tuple[int, Application, Finding]  # the number is the finding's position


def _common_part(app: Application, finding: Finding) -> tuple[object, ...]:
    """Return the part of a finding that is the same in all Applications of an ApplicationSet or
    ImageUpdater.
    """
    message = finding.message
    if not finding.field:
        message = _without_name(app, finding, _QUOTED.sub("", message))
    return _maker(app, finding), finding.origin, finding.key, finding.severity, message


def _of_the_same_words(members: Iterable[_Member]) -> list[list[_Member]]:
    """Group the findings whose messages are the same,
    or differ only in the Application's name.
    """
    groups: dict[str, list[_Member]] = {}
    for member in members:
        _, app, finding = member
        # The NUL keeps a message without names apart from other whole messages.
        keys = (finding.message, f"{_without_name(app, finding, finding.message)}\0")
        group = next((groups[key] for key in keys if key in groups), [])
        group.append(member)
        for key in keys:
            groups.setdefault(key, group)
    distinct = {id(group): group for group in groups.values()}
    return list(distinct.values())


def _without_name(app: Application, finding: Finding, text: str) -> str:
    """Return the text without the annotation's key and the Application's name."""
    if finding.key:
        text = text.replace(finding.key, "")
    return text.replace(app.name, "")


def _maker(app: Application, finding: Finding) -> str:
    """Return the resource that sets this annotation for several Applications, or ""."""
    if finding.field:
        return f"ImageUpdater {app.resource}"
    return f"ApplicationSet {app.generated_by}" if app.generated_by else ""


def _of_several(app: Application, finding: Finding, others: int) -> Finding:
    more = counted(others, "more Application")
    message = f"{_maker(app, finding)}: {finding.message} ({app.key} and {more})"
    return replace(
        finding,
        application="",
        trouble=replace(finding.trouble, message=message),
    )


def _finding(
    app: Tracker,
    key: str,
    severity: Severity,
    message: str,
    hint: str,
) -> Finding:
    value = app.annotations.get(key, "")
    return Finding(noted(severity, message, hint), app.key, key, value, *_place(app, key))


def of_flaw(app: Tracker, flaw: Flaw) -> Finding:
    """Return a flaw as a finding."""
    trouble = noted(flaw.severity, flaw.message, flaw.hint)
    return Finding(trouble, app.key, flaw.key, flaw.value, *_place(app, flaw.key))


def _place(app: Tracker, key: str) -> tuple[str, str]:
    """Return the manifest that has the annotation, and the field if the manifest is an
    ImageUpdater.
    """
    if not isinstance(app, Application) or key not in app.from_resource:
        return app.origin, ""
    return app.resource_origin, FIELDS.get(split_key(key)[1] or key, "spec")


def _impossible_entries(text: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the parts of an `image-list` that cannot be images, each with a message and a hint."""
    pieces = split_image_list(text)
    cut = cut_ranges(text)
    for number, piece in enumerate(pieces):
        before = pieces[number - 1] if number else ""
        placeholder = PLACEHOLDER.search(piece)
        if placeholder:
            message = f"{piece!r} contains the placeholder {placeholder.group()!r}"
            yield piece, (message, "replace it with its value")
        elif number in cut:  # reported as a flaw of its entry
            continue
        elif _has_open_bracket(before):
            hint = (
                "list only the image in image-list, and put the pattern in <alias>.allow-tags:"
                " regexp:…"
            )
            message = (
                f"{piece!r} is part of a pattern that was split at a comma: commas separate entries"
            )
            yield piece, (message, hint)
        elif RANGE.fullmatch(piece):
            message = f"{piece!r} is a version range without an image"
            yield piece, (message, f"use <alias>=<image>:{piece}")
        elif PATTERN.match(piece):
            hint = (
                "list each image separately: <alias>=<image>; to choose tags, use"
                " <alias>.allow-tags: regexp:…"
            )
            yield piece, (f"{piece!r} is a pattern, which image-list does not accept", hint)


def _has_open_bracket(text: str) -> bool:
    return any(text.count(opening) > text.count(closing) for opening, closing in ("{}", "[]", "()"))


def _key_mistakes(app: Application, key: str) -> Iterator[Remark]:
    """Yield the problems of a key that has no effect here, or that AIU does not read."""
    name, known = split_key(key)
    if key in PER_IMAGE_IN_AIU:
        message = f"Image Update applies {key} to every image, but AIU ignores it without an alias"
        yield key, "info", message, f"use <alias>.{key}"
        return
    image_list = app.annotations.get("image-list", "")
    bare = read_image_list(image_list).bare.get(name) if known else None
    if bare:
        message = (
            f"the entry {bare.text!r} has no alias; AIU reads per-image keys only with an alias"
        )
        yield key, "info", message, f"use {name}={bare.text} in image-list"
        return
    doubtful = doubt(key, image_list)
    if doubtful:
        # An orphan that is not similar to any alias is probably left over from a removed image.
        has_similar_alias = doubtful.kind == "orphan" and doubtful.meant
        is_error = doubtful.kind in ("near", "level") or has_similar_alias
        yield key, "error" if is_error else "warning", doubtful.message, doubtful.hint
        return
    if key in app.from_resource:  # not an annotation, and AIU reads our keys in its own resource
        return
    if not NAME.fullmatch(key):
        fixed = key.replace("/", "_")
        message = (
            f"Kubernetes rejects the annotation {key!r}: after the prefix, a name can have up to 63"
            " letters, digits, "
        )
        hint = (
            f"use {fixed}"
            if NAME.fullmatch(fixed)
            else "use a shorter alias with only letters and digits"
        )
        yield key, "error", f"{message}'-', '_', and '.'", hint
    elif key in OURS or known in OURS:
        yield key, "info", f"{known or key} works in Image Update, but AIU ignores it", ""


def _is_read(app: Application, key: str) -> bool:
    """Return whether an annotation is read, or would be if its key were spelled correctly."""
    doubtful = doubt(key, app.annotations.get("image-list", ""))
    return doubtful is None or doubtful.kind not in ("former", "unknown")


def _value_mistakes(key: str, value: str) -> Iterator[Remark]:
    """Yield problems that would otherwise appear only when a run queries the registry."""
    if "{{" in value and key not in ("git-branch", "image-list"):
        message = (
            f"{key}: {value!r} is a template, but it is never rendered: Application annotations are"
            " plain text"
        )
        hint = "use the literal value, or render the annotation with an ApplicationSet"
        yield key, "error", message, hint
    if value and (key == "pull-secret" or key.endswith(".pull-secret")):
        yield from _pull_secret_mistakes(key, value)


def _pull_secret_mistakes(key: str, value: str) -> Iterator[Remark]:
    try:
        source = parse_credential_source(value)
    except Malformed as error:
        yield key, "error", f"{key}: {error.message}", error.hint
        return
    if source.kind == "ext":
        message = f"{key}: the script {source.script} is used only with --allow-exec"
        hint = "pass --allow-exec, and add the script to the step's image"
        yield key, "info", message, hint
    elif source.kind == "env":
        message = f"{key}: the variable {source.env} is used only with --allow-env"
        yield key, "info", message, f"pass --allow-env {source.env}"
    elif source.kind == "secret" and source.field in (DOCKER_CONFIG, ".dockercfg"):
        message = (
            f"{key}: the field {source.field} does not contain user:password, which"
            " secret:…#<field> requires"
        )
        yield key, "error", message, f"use pullsecret:{source.namespace}/{source.name}"


def _entry_mistakes(app: Application, misplaced: Collection[str]) -> Iterator[Remark]:
    """Yield mistakes that appear only when all settings of an entry are compared."""
    listed = read_image_list(app.annotations.get("image-list", ""))
    annotated = index(app.annotations)
    for entry in (item for item in listed.entries if item.text not in misplaced):
        if entry.image.repository != entry.image.repository.lower():
            yield _upper_case(entry)
        if entry.alias and not ALIAS.fullmatch(entry.alias):
            yield _unusable_alias(entry.alias)
        own = settings(annotated, listed.prefixes(entry))
        yield from _helm_keys(entry, own)
        yield from _several_kinds(app, entry, own)
        yield from _range_in_strategy(entry, own["update-strategy"])
        allow = own["allow-tags"]
        keyword, colon, expression = allow.value.partition(":")
        is_regexp = bool(colon) and keyword.lower() == "regexp"
        # A space after `regexp:` is part of the pattern (AIU issue 1018).
        fixed = blind_pattern(expression) if is_regexp else ""
        if fixed:
            message = (
                f"the pattern {expression!r} cannot match any tag: spaces, quotes, and slashes"
                " are matched literally"
            )
            yield allow.key, "error", f"{allow.key}: {message}", f"use {fixed}"
        image_name = own["kustomize.image-name"]
        image = live_image(image_name.value) if image_name else None
        if image and (image.tag or image.digest):
            message = (
                f"{image_name.key}: {image_name.value!r} includes a version, which is read as part"
                " of the name"
            )
            yield image_name.key, "error", message, f"use {image.name}"


def _upper_case(entry: Entry) -> Remark:
    why = "the repository has uppercase letters, which registries reject, so no build matches it"
    image = entry.image
    name = image.name.removesuffix(image.repository) + image.repository.lower()
    fixed = listed_as(replace(entry, image=replace(image, name=name)), entry.constraint)
    return "image-list", "error", f"{entry.text!r}: {why}", f"use {fixed}"


def _range_in_strategy(entry: Entry, strategy: Setting) -> Iterator[Remark]:
    """Yield a remark about `semver:<range>`, which AIU does not support."""
    word, colon, _ = strategy.value.partition(":")
    wanted = range_of(strategy.value) if colon and word.strip().lower() == "semver" else ""
    if not wanted or wanted == entry.constraint:
        return
    combined = wanted
    if entry.constraint and "||" not in wanted:
        combined = f"{entry.constraint} {wanted}"
    message = (
        f"{strategy.value!r} works in Image Update, but AIU reads it as semver without a constraint"
    )
    hint = f"use {listed_as(entry, combined)} in image-list, and set {strategy.key}: semver"
    yield strategy.key, "info", message, hint


def _unusable_alias(alias: str) -> Remark:
    """Return the remark about an alias that an annotation name cannot begin with."""
    plain = alias.replace("/", "-")
    if ALIAS.fullmatch(plain):
        message = (
            f"the alias {alias!r} has a '/', which annotation names cannot contain: its keys begin"
            f" with {alias.replace('/', '_')!r}, and AIU 1.0 and later does not find them"
        )
        hint = f"use {plain}=<image>, and {plain}.<key> for its keys"
        return "image-list", "info", message, hint
    message = (
        f"the alias {alias!r} cannot be the start of an annotation name, so its per-image keys are"
        " not found"
    )
    hint = "use only letters, digits, '-', '_', and '.', and begin with a letter or digit"
    return "image-list", "warning", message, hint


def _helm_keys(entry: Entry, own: Mapping[str, Setting]) -> Iterator[Remark]:
    """Yield mistakes in Helm keys.

    A key takes a parameter's name or a value's path, but people set it to the value itself.
    """
    name, tag, spec, digest = (
        own[f"helm.image-{key}"] for key in ("name", "tag", "spec", "digest")
    )
    samples = (
        (name, "image.repository"),
        (tag, "image.tag"),
        (spec, "image"),
        (digest, "image.digest"),
    )
    for setting, sample in samples:
        yield from _helm_key(setting, sample, entry)
    if spec and is_tag_key(spec.value):
        message = (
            f"{spec.key} takes the whole reference (name:tag), but {spec.value!r} looks like a key"
            " for the tag"
        )
        yield spec.key, "warning", message, f"use {key_of(entry, 'helm.image-tag')}: {spec.value}"
    elif not spec and tag and is_name_key(tag.value):
        message = f"{tag.key} takes the tag, but {tag.value!r} looks like a key for the name"
        swapped = name and is_tag_key(name.value)
        hint = (
            f"use {tag.key}: {name.value} and {name.key}: {tag.value}"
            if swapped
            else "use the key for the tag"
        )
        yield tag.key, "error" if swapped else "warning", message, hint


def _helm_key(setting: Setting, sample: str, entry: Entry) -> Iterator[Remark]:
    """Yield an error or a warning if the key's value is not a parameter's name or a value's path.

    `sample` is an example of a valid value.
    """
    key = setting.key
    value = setting.value
    fix = "use the Helm parameter's name instead"
    as_in_chart = f"for example, {sample}, or the name that the chart uses"
    path = value.removeprefix("$").lstrip(".")
    is_an_image = is_image(value, entry)  # None: it could be either
    if path.startswith("Values."):
        message = f"{key}: {value!r} is template syntax"
        yield key, "error", message, f"use {path.removeprefix('Values.')}"
    elif is_tag(value):
        yield key, "error", f"{key}: {value!r} is a tag; {fix}", as_in_chart
    elif is_an_image:
        yield key, "error", f"{key}: {value!r} is an image; {fix}", as_in_chart
    elif is_an_image is None:
        yield key, "warning", f"{key}: {value!r} looks like an image; {fix}", as_in_chart
    elif "." in value and any(part.isdigit() for part in value.split(".")):
        message = f"{key}: {value!r} uses a number as a key, not as a list index"
        places = re.sub(r"\.([0-9]+)(?=\.|$)", r"[\1]", value)
        yield key, "warning", message, f"use {places} for a list index"


def _several_kinds(app: Application, entry: Entry, own: Mapping[str, Setting]) -> Iterator[Remark]:
    """Yield a warning if an image has keys of two types.

    AIU 0.x uses the keys for the Application's type; 1.x rejects the Application.
    """
    by_kind = {
        kind: setting
        for kind in ("helm", "kustomize", "plugin")
        for key, setting in own.items()
        if setting and key.startswith(f"{kind}.")
    }
    if len(by_kind) < 2:  # not several types
        return
    target = app.annotations.get("write-back-target", "")
    if "kustomization" in target and "helmvalues" in target:  # both types are written
        return
    used_kinds = {source.kind.lower() for source in app.sources} & set(by_kind)
    kept = next(iter(used_kinds)) if len(used_kinds) == 1 else ""
    names = " and ".join(setting.key for setting in by_kind.values())
    message = (
        f"{entry.text!r} has keys for several types ({names}), but only the keys for the"
        " Application's type are used"
    )
    hint = (
        f"keep the {kept}.… keys"
        if kept
        else "keep only the keys for the Application's type (spec.source)"
    )
    unused_key = next(setting.key for kind, setting in by_kind.items() if kind != kept)
    yield unused_key, "warning", message, hint


def _reading_mistakes(app: Application, readings: Iterable[EntryReading]) -> Iterator[Remark]:
    """Yield mistakes that appear only when an entry's settings
    are combined with the defaults.
    """
    for reading in readings:
        yield from _tag_order_mistakes(app, reading)
        name = reading.keys.name
        if name and name == reading.keys.tag and not reading.keys.spec:
            message = (
                f"for {reading.entry.text!r}, helm.image-name and helm.image-tag are both {name!r}"
            )
            hint = f"use {_alias_of(reading)}.helm.image-spec: {name}"
            yield "image-list", "error", message, hint


def _tag_order_mistakes(app: Application, reading: EntryReading) -> Iterator[Remark]:
    """Yield a warning if `tag-order` does not work for a running tag, or for a tag in the
    Application's own source.

    Either the order does not match the tag, or it compares the digits of a commit ID, which have no
    meaningful order.
    """
    rules = rules_of(reading.policy)
    if not reading.policy.tag_order or not rules.ordered:
        return
    listed = read_image_list(app.annotations.get("image-list", ""))
    key = settings(index(app.annotations), listed.prefixes(reading.entry))["tag-order"].key
    references = [*app.live, *(text for source in app.sources for text in source.images)]
    identity = reading.entry.image.identity
    tags = [
        image.tag for image in map(live_image, references) if image and image.identity == identity
    ]
    tag_key = reading.keys.tag or "image.tag"
    tags += [
        parameter.value
        for source in app.sources
        for parameter in source.parameters
        if parameter.name == tag_key
    ]
    for tag in dict.fromkeys(filter(None, tags)):
        rule, why = rules.objection(tag, reading.policy)
        if rule == "tag-order":
            hint = (
                "fix the pattern: until it matches the current tag, any tag that matches the"
                " pattern will replace the current one"
            )
            yield key, "warning", f"{key}: {why}, which is the current tag", hint
        elif commit := commit_in(parse_tag_order(reading.policy.tag_order), tag):
            message = (
                f"{key}: the current tag {tag} contains the commit ID {commit}, "
                "whose digits have no order"
            )
            hint = "match only the number that increases: regexp:-(?P<build>[0-9]+)$"
            yield key, "warning", message, hint


def _shared_helm_values(subscriptions: Iterable[Subscription]) -> Iterator[Remark]:
    """Yield an error for two images that are written to the same Helm value: each image's events
    would undo the other's changes.
    """
    taken: dict[tuple[str, str], str] = {}
    for sub in subscriptions:
        key = _helm_value(sub)
        if not key:
            continue
        other = taken.setdefault((sub.path, key), sub.entry.text)
        if other != sub.entry.text:
            hint = f"set {_alias_of(sub)}.helm.image-tag and .helm.image-name to separate keys"
            message = f"{other!r} and {sub.entry.text!r} are both written to {key}"
            yield "image-list", "error", message, hint


def _two_rules(subscriptions: Iterable[Subscription]) -> Iterator[Remark]:
    """Yield a warning for two entries that write the same image to the same place by different
    rules.
    """
    taken: dict[tuple[str, str, str], Subscription] = {}
    for sub in subscriptions:
        place = _kustomize_entry(sub) or _containers(sub)
        if not place:
            continue
        other = taken.setdefault((sub.path, place, sub.entry.image.identity), sub)
        if _rules(other) != _rules(sub):
            message = (
                f"{other.entry.text!r} and {sub.entry.text!r} both write {place}, but under"
                " different rules: a tag that either one admits is deployed by both"
            )
            kind = "manifests" if sub.target == "manifests" else "kustomize"
            key = f"{_alias_of(sub)}.{kind}.image-name"
            hint = f"give both the same rules, or set a different name for each with {key}"
            yield "image-list", "warning", message, hint


def _kustomize_entry(sub: Subscription) -> str:
    """Return a description of the kustomization entry that gets the tag, or ""."""
    in_override = sub.target in ("override", "file") and sub.source.kind == "Kustomize"
    if not in_override and sub.target != "kustomization":
        return ""
    return f"the entry for {sub.keys.kustomize_name or sub.entry.image.name}"


def _containers(sub: Subscription) -> str:
    """Return a description of the containers that get the tag, or ""."""
    if sub.target != "manifests":
        return ""
    return f"the containers for {sub.keys.manifests_name or sub.entry.image.name}"


def _alias_of(entry: EntryReading | Subscription) -> str:
    return entry.entry.alias or "<alias>"


def _helm_value(sub: Subscription) -> str:
    """Return the key of the Helm value that gets the tag, or "" if the tag goes elsewhere."""
    in_override = sub.target in ("override", "file") and sub.source.kind == "Helm"
    if not in_override and sub.target != "helmvalues":
        return ""
    return sub.keys.spec or sub.keys.tag or "image.tag"


def shared_places(written: Iterable[Subscription]) -> tuple[Finding, ...]:
    """Return a problem for each place in Git to which two Applications write different images,
    or the same image by different rules.

    Each Application deploys what the other writes, regardless of its own rules.
    """
    first: dict[tuple[str, ...], Subscription] = {}
    # one problem per place, no matter how many Applications share it
    found: dict[tuple[str, ...], Finding] = {}
    for sub in written:
        key = _helm_value(sub) or _kustomize_entry(sub) or _containers(sub)
        if not key or sub.target == "override":  # an override file belongs to one Application
            continue
        place = (sub.repo, sub.base, sub.head_template, sub.path, key)
        other = first.setdefault(place, sub)
        if other.application.key == sub.application.key or place in found:
            continue
        location = f"{key} in {sub.path or '/'}"
        neighbour = other.application.key
        same_image = other.entry.image.identity == sub.entry.image.identity
        if same_image and _rules(other) == _rules(sub):
            continue
        severity: Severity
        if same_image:
            severity = "warning"
            message = (
                f"{neighbour} also writes {location}, but under different rules: a tag that either"
                " one admits is deployed by both"
            )
            hint = "give both the same rules, or use a separate file for each"
        else:
            severity = "error"
            message = (
                f"{sub.entry.text!r} and {other.entry.text!r} of {neighbour} are both written to"
                f" {location}"
            )
            hint = "use a separate key or file for each"
        found[place] = _finding(sub.application, "image-list", severity, message, hint)
    return tuple(found.values())


def _rules(sub: Subscription) -> tuple[object, ...]:
    policy = sub.policy
    return (
        policy.strategy,
        policy.constraints,
        policy.allow,
        policy.ignore,
        policy.platforms,
        policy.tag_order,
    )


def _target_mistakes(subscriptions: Iterable[Subscription]) -> Iterator[Remark]:
    """Yield mistakes that appear only when a target is compared with the entry's keys and
    source.
    """
    for sub in subscriptions:
        alias = _alias_of(sub)
        has_tag_key = bool(sub.keys.tag or sub.keys.spec)
        if sub.target == "helmvalues" and sub.keys.name and not has_tag_key:
            message = (
                f"helm.image-name is set for {sub.entry.text!r}, but there is no key for the tag"
            )
            yield "write-back-target", "error", message, f"set {alias}.helm.image-tag"
        from_root = _meant_from_the_root(sub) if sub.target == "helmvalues" else ""
        if from_root:
            message = (
                f"{sub.path!r} is not one of the source's valueFiles: paths are relative to the"
                " source's path"
            )
            yield "write-back-target", "error", message, f"use helmvalues:/{from_root}"
        of_plugin = sub.source.kind == "Plugin" and sub.target in ("override", "file")
        if of_plugin and not has_tag_key:
            message = (
                f"no annotation specifies the plugin variable for {sub.entry.text!r}, so the tag"
                " cannot be written"
            )
            hint = (
                f"set {alias}.plugin.image-tag or {alias}.plugin.image-spec to the variable's name"
            )
            yield "image-list", "error", message, hint
        if sub.target == "override" and sub.source.kind == "Directory" and sub.method == "git":
            message = "the source is a plain directory, which has no override file"
            yield "write-back-target", "error", message, "use write-back-target: manifests"


def _head_template_mistakes(app: Application) -> Iterator[Remark]:
    """Yield an error if a head branch template is invalid."""
    try:
        _, head = git_branch(app.annotations.get("git-branch", ""))
    except Malformed:  # reported as a flaw
        return
    if not head:
        return
    try:
        check_branch_template(head)
    except Malformed as error:
        hint = "use a Go text/template without sprig functions"
        yield "git-branch", "error", f"git-branch: {error.message}", hint


def _meant_from_the_root(sub: Subscription) -> str:
    """Return the values file that a relative path would refer to if resolved from the root, or "".

    People expect paths to start at the root (AIU issue 1518).
    """
    if not sub.source.path or sub.repo != sub.source.repo:
        return ""
    folder = f"{sub.source.path}/"
    if not sub.path.startswith(folder):
        return ""
    files = set()
    for name in sub.source.value_files:
        with suppress(TaskError):
            files.add(inside(sub.source.path, name))
    if sub.path in files:
        return ""
    path_as_typed = sub.path.removeprefix(folder)
    return path_as_typed if path_as_typed in files else ""
